"""Every relative link of every page leads to a file or folder of the repository."""

import re
import subprocess
import unittest

from harness import ROOT


class Links(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        listed = subprocess.run(
            ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
            check=True, capture_output=True, text=True,
        ).stdout.split()
        self.assertGreater(len(listed), 20)
        seen = 0
        for page in listed:
            text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.M | re.S)
            for target in re.findall(r"\]\(([^)#\s]+)", text):
                if re.match(r"[a-z]+:", target):
                    continue
                seen += 1
                with self.subTest(page=page, target=target):
                    self.assertTrue((ROOT / page).parent.joinpath(target).exists())
        self.assertGreater(seen, 80)


if __name__ == "__main__":
    unittest.main(verbosity=2)
