"""Reads a YAML document with PyYAML (YAML 1.1), and compares it with its JSON: `read.py DOCUMENT.yaml DOCUMENT.json`."""

import json
import sys

import yaml

with open(sys.argv[1], encoding="utf-8") as document, open(sys.argv[2], encoding="utf-8") as expected:
    # As JSON, because Python holds 1, 1.0 and True to be equal. A date has no JSON.
    read, meant = (json.dumps(value, sort_keys=True) for value in (yaml.safe_load(document), json.load(expected)))
if read != meant:
    sys.exit(f"PyYAML reads {read}\ninstead of   {meant}")
