"""The server of tests/objects, which serves local files as object storage."""

import json
import subprocess
import urllib.request

CREDENTIALS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}


class Objects:
    """A server with the files of `folder` as `s3://bucket/…`."""

    def __init__(self, binary, folder, *options):
        program = binary.parent / "objects"
        arguments = [program, *map(str, options), f"bucket={folder}"]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        self.endpoint = self.process.stdout.readline().strip()

    @property
    def storage_options(self):
        return {"endpoint_url": self.endpoint, "region": "us-east-1", **CREDENTIALS}

    @property
    def environment(self):
        """The variables with the same options."""
        return {f"AWS_{name.removeprefix('aws_').upper()}": value for name, value in self.storage_options.items()}

    def counts(self):
        with urllib.request.urlopen(f"{self.endpoint}/_counts") as answer:
            return json.load(answer)
