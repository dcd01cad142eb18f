"""Our schema against the descriptors inside a published client: every field that we name has the
number, the type and the cardinality that the client's package says."""

import pathlib
import tempfile
import unittest

from google.protobuf import descriptor_pb2
from grpc_tools import protoc
from opentelemetry._opamp.proto import anyvalue_pb2, opamp_pb2

from harness import ROOT

Field = descriptor_pb2.FieldDescriptorProto


def messages(file, prefix=""):
    for message in file:
        yield prefix + message.name, message
        yield from messages(message.nested_type, prefix + message.name + ".")


def published():
    found = {}
    for module in (opamp_pb2, anyvalue_pb2):
        proto = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(proto)
        found.update(messages(proto.message_type))
        for enum in proto.enum_type:
            found["enum " + enum.name] = enum
    return found


def ours():
    with tempfile.TemporaryDirectory() as out:
        target = pathlib.Path(out) / "descriptors"
        source = ROOT / "proto" / "proto"
        code = protoc.main(["protoc", f"-I{source}", f"--descriptor_set_out={target}", str(source / "opamp.proto")])
        assert code == 0, "protoc refuses opamp.proto"
        files = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes())
    return dict(messages(files.file[0].message_type)), files.file[0].enum_type


# Renamed in a newer schema than the client's; the wire is the same.
RENAMED = {"AgentConfigObject": "AgentConfigFile"}


class Schema(unittest.TestCase):
    def test_numbers_and_types_agree_with_the_published_client(self):
        theirs = published()
        mine, enums = ours()
        compared = 0
        for name, message in mine.items():
            other = theirs.get(name) or theirs.get(RENAMED.get(name, ""))
            if other is None:
                continue
            fields = {field.number: field for field in other.field}
            for field in message.field:
                against = fields.get(field.number)
                if against is None:
                    continue
                with self.subTest(field=f"{name}.{field.name}"):
                    self.assertEqual(field.type, against.type)
                    self.assertEqual(field.label, against.label)
                    if field.type == Field.TYPE_MESSAGE:
                        last = against.type_name.rsplit(".", 1)[1]
                        mine_last = field.type_name.rsplit(".", 1)[1]
                        self.assertEqual(RENAMED.get(mine_last, mine_last), last)
                compared += 1
        self.assertGreater(compared, 60)
        numbers = 0
        for enum in enums:
            other = theirs.get("enum " + enum.name)
            if other is None:
                continue
            by_number = {value.number: value.name for value in other.value}
            for value in enum.value:
                if value.number in by_number:
                    with self.subTest(value=value.name):
                        self.assertEqual(value.name.split("_", 1)[1], by_number[value.number].split("_", 1)[1])
                    numbers += 1
        self.assertGreater(numbers, 10)

    def test_the_hot_messages_are_there(self):
        mine, _ = ours()
        for name in ("AgentToServer", "ServerToAgent", "AgentDescription", "RemoteConfigStatus", "EffectiveConfig"):
            self.assertIn(name, mine)


if __name__ == "__main__":
    unittest.main(verbosity=2)
