"""deploy/kubernetes, built by kustomize and checked without a cluster: against Kubernetes' own
schemas, against the `--help` of the gateway's roles, and against what replicas promise."""

import re
import subprocess
import unittest

import kubernetes_validate
import yaml

from flags import AGGREGATE_FLAGS, AGGREGATE_VARIABLES, FLAGS, VARIABLES
from harness import BUILT, ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())
VERSIONS = ("1.30", "1.34", kubernetes_validate.latest_version())
# Of an operator's own schema, which Kubernetes does not know.
CUSTOM = {"ServiceMonitor"}
# Made by whoever deploys; named in README.md.
GIVEN = {
    "repo": {"tidegate-tls", "tidegate-tokens", "tidegate-scrape", "tidegate-git", "tidegate-git-push"},
    "snapshot": {"tidegate-tls", "tidegate-tokens", "tidegate-scrape", "tidegate-snapshot-key"},
}
for given in GIVEN.values():
    given |= {"tidegate-uplink", "tidegate-uplink-aggregator"}
# What runs, and the role that it begins with.
ROLES = {
    ("Deployment", "tidegate"): ("serve", FLAGS, VARIABLES),
    ("StatefulSet", "tidegate-aggregator"): ("aggregate", AGGREGATE_FLAGS, AGGREGATE_VARIABLES),
}


def build(overlay):
    run = subprocess.run(
        [BUILT / "kustomize", "build", FOLDER / "overlays" / overlay], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    return list(yaml.safe_load_all(run.stdout))


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(s|m)", text).groups()
    return int(number) * {"s": 1, "m": 60}[unit]


class Kubernetes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.built = {overlay: build(overlay) for overlay in OVERLAYS}

    def each(self):
        for overlay, resources in self.built.items():
            with self.subTest(overlay=overlay):
                yield overlay, resources, {(item["kind"], item["metadata"]["name"]): item for item in resources}

    def test_both_sources_have_an_overlay(self):
        self.assertEqual(OVERLAYS, ["repo", "snapshot"])

    def test_every_resource_fits_its_schema(self):
        for _, resources, _ in self.each():
            for resource in resources:
                if resource["kind"] not in CUSTOM:
                    for version in VERSIONS:
                        with self.subTest(resource=resource["kind"], version=version):
                            kubernetes_validate.validate(resource, version, strict=True)

    def test_a_misspelt_field_is_noticed(self):
        deployment = next(item for item in build("repo") if item["kind"] == "Deployment")
        deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(deployment, VERSIONS[0], strict=True)

    def test_every_flag_and_variable_is_one_of_the_gateway(self):
        for _, _, by_name in self.each():
            source = next(item for (kind, name), item in by_name.items() if kind == "ConfigMap")
            for name, (role, flags, variables) in ROLES.items():
                container = by_name[name]["spec"]["template"]["spec"]["containers"][0]
                self.assertEqual(container["args"][0], role)
                for argument in container["args"][1:]:
                    self.assertIn(argument.split("=")[0], flags)
                self.assertLessEqual(set(source["data"]), variables)
            places = {"TIDEGATE_REPO", "TIDEGATE_SNAPSHOT", "TIDEGATE_ESTATE"}
            self.assertEqual(len(places & set(source["data"])), 1)

    def test_pods_are_as_restricted_as_pods_can_be(self):
        for _, _, by_name in self.each():
            namespace = by_name["Namespace", "tidegate"]
            self.assertEqual(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted")
            for name in ROLES:
                pod = by_name[name]["spec"]["template"]["spec"]
                self.assertIs(pod["automountServiceAccountToken"], False)
                self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
                self.assertGreater(pod["securityContext"]["runAsUser"], 0)
                self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                allowed = {"secret", "emptyDir", "persistentVolumeClaim", "configMap"}
                for volume in pod["volumes"]:
                    self.assertLessEqual(set(volume) - {"name"}, allowed)
                for container in pod["containers"]:
                    context = container["securityContext"]
                    self.assertIs(context["allowPrivilegeEscalation"], False)
                    self.assertIs(context["readOnlyRootFilesystem"], True)
                    self.assertEqual(context["capabilities"], {"drop": ["ALL"]})
                    self.assertEqual(set(container["resources"]["requests"]), {"cpu", "memory"})
                    self.assertIn("memory", container["resources"]["limits"])
                    self.assertRegex(container["image"], r"^tidegate:(edge|full)$")

    def test_collectors_find_room_while_replicas_are_replaced(self):
        for _, _, by_name in self.each():
            spec = by_name["Deployment", "tidegate"]["spec"]
            self.assertEqual(spec["strategy"]["rollingUpdate"], {"maxUnavailable": 0, "maxSurge": 1})
            container = spec["template"]["spec"]["containers"][0]
            flags = dict(argument.split("=", 1) for argument in container["args"][1:])
            leaves = (
                container["lifecycle"]["preStop"]["sleep"]["seconds"]
                + seconds(flags["--drain-delay"])
                + seconds(flags["--drain"])
            )
            # The last links have 5 s after they were told to close.
            self.assertGreaterEqual(spec["template"]["spec"]["terminationGracePeriodSeconds"], leaves + 10)
            probe = container["readinessProbe"]
            self.assertEqual(probe["httpGet"], {"path": "/readyz", "port": "admin"})
            self.assertLess(probe["periodSeconds"] * probe["failureThreshold"], seconds(flags["--drain-delay"]))
            # A replica that fails /readyz because it drains must not be killed for it.
            self.assertEqual(container["livenessProbe"]["httpGet"]["path"], "/healthz")
            self.assertEqual(by_name["PodDisruptionBudget", "tidegate"]["spec"]["maxUnavailable"], 1)

    def test_names_lead_somewhere(self):
        for overlay, resources, by_name in self.each():
            templates = {name: by_name[name]["spec"]["template"] for name in ROLES}
            labels = {name: template["metadata"]["labels"] for name, template in templates.items()}
            ports = {
                name: {port["name"] for port in template["spec"]["containers"][0]["ports"]}
                for name, template in templates.items()
            }

            def selected(selector):
                found = [name for name in ROLES if selector.items() <= labels[name].items()]
                self.assertTrue(selector and found, selector)
                return found

            for name, template in templates.items():
                self.assertEqual(selected(by_name[name]["spec"]["selector"]["matchLabels"]), [name])
                for spread in template["spec"]["topologySpreadConstraints"]:
                    self.assertEqual(selected(spread["labelSelector"]["matchLabels"]), [name])
            services = [item for item in resources if item["kind"] == "Service"]
            self.assertEqual(len(services), 4)
            for item in resources:
                if item["kind"] == "Service":
                    (name,) = selected(item["spec"]["selector"])
                    self.assertLessEqual({port["targetPort"] for port in item["spec"]["ports"]}, ports[name])
                if item["kind"] == "PodDisruptionBudget":
                    self.assertEqual(len(selected(item["spec"]["selector"]["matchLabels"])), 1)
                if item["kind"] == "NetworkPolicy":
                    selected(item["spec"]["podSelector"]["matchLabels"])
                    for way in item["spec"].get("egress", []) + item["spec"].get("ingress", []):
                        for peer in way.get("to", []) + way.get("from", []):
                            if "podSelector" in peer:
                                selected(peer["podSelector"]["matchLabels"])
                if item["kind"] == "HorizontalPodAutoscaler":
                    target = item["spec"]["scaleTargetRef"]
                    self.assertIn((target["kind"], target["name"]), by_name)
                    self.assertNotIn("replicas", by_name["Deployment", "tidegate"]["spec"])
                if item["kind"] == "ServiceMonitor":
                    wanted = item["spec"]["selector"]["matchLabels"].items()
                    scraped = {
                        service["metadata"]["name"]
                        for service in services
                        if wanted <= service["metadata"]["labels"].items()
                        and item["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
                    }
                    self.assertEqual(scraped, {"tidegate-admin", "tidegate-aggregator"})
                if item["kind"] != "Namespace":
                    self.assertEqual(item["metadata"]["namespace"], "tidegate")

            monitor = by_name["ServiceMonitor", "tidegate"]["spec"]["endpoints"][0]
            given = {monitor["authorization"]["credentials"]["name"]}
            source = next(item for item in resources if item["kind"] == "ConfigMap")
            for name, template in templates.items():
                pod = template["spec"]
                container = pod["containers"][0]
                mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
                claims = by_name[name]["spec"].get("volumeClaimTemplates", [])
                volumes = {volume["name"] for volume in pod["volumes"]} | {claim["metadata"]["name"] for claim in claims}
                self.assertEqual(set(mounted), volumes)
                self.assertEqual(container["envFrom"], [{"configMapRef": {"name": source["metadata"]["name"]}}])
                files = [argument.split("=", 1)[1] for argument in container["args"] if "=/" in argument]
                files += [value for value in source["data"].values() if value.startswith("/")]
                for file in files:
                    self.assertTrue(any(f"{file}/".startswith(f"{folder}/") for folder in mounted.values()), file)
                given |= {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
                given |= {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
            self.assertEqual(given, GIVEN[overlay])
            readme = (FOLDER / "README.md").read_text()
            for name in given:
                self.assertIn(f"`{name}`", readme)

    def test_every_replica_reports_to_every_aggregator(self):
        for _, _, by_name in self.each():
            flags = [
                dict(argument.split("=", 1) for argument in by_name[name]["spec"]["template"]["spec"]["containers"][0]["args"] if "=" in argument)
                for name in ROLES
            ]
            replica, aggregator = flags
            spec = by_name["StatefulSet", "tidegate-aggregator"]["spec"]
            port = aggregator["--listen-uplink"].rsplit(":", 1)[1]
            names = [f"tidegate-aggregator-{n}.{spec['serviceName']}:{port}" for n in range(spec["replicas"])]
            self.assertEqual(replica["--uplink"].split(","), names)
            self.assertEqual(by_name["Service", spec["serviceName"]]["spec"]["clusterIP"], "None")
            # The certificate is for *.replicas.tidegate.
            self.assertRegex(replica["--instance-label"], r"^\$\(POD_NAME\)\.replicas\.tidegate$")
            least = by_name["HorizontalPodAutoscaler", "tidegate"]["spec"]["minReplicas"]
            self.assertEqual(int(aggregator["--expect-replicas"]), least)

    def test_pollers_stay_with_a_replica_for_longer_than_their_session_lives(self):
        for _, _, by_name in self.each():
            polling = by_name["Service", "tidegate-polling"]["spec"]
            self.assertEqual(polling["sessionAffinity"], "ClientIP")
            self.assertGreater(polling["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"], 90)
            self.assertNotIn("sessionAffinity", by_name["Service", "tidegate"]["spec"])

    def test_the_way_out_is_open_only_where_the_head_comes_from_outside(self):
        for overlay, _, by_name in self.each():
            for name in ("tidegate", "tidegate-aggregator"):
                self.assertEqual(by_name["NetworkPolicy", name]["spec"]["egress"], [])
            self.assertEqual(("NetworkPolicy", "tidegate-git") in by_name, overlay == "repo")


if __name__ == "__main__":
    unittest.main(verbosity=2)
