#!/usr/bin/env python3
"""What the scripts about deploy/ cannot do in bash.

usage: deploy.py values VALUES.YAML README.MD      the README with the table of values in it
       deploy.py schemas FOLDER <OPENAPI           a schema of each kind, as kubeconform reads them
       deploy.py pod <LIST                         the Pods that the Deployments in a list of objects make
       deploy.py run NAMESPACE/NAME <DEPLOYMENT    arguments and variables of the operator in a Deployment, for bash
       deploy.py rights <LIST                      what the roles allow that a list of objects binds, one right a line
"""
import json
import re
import shlex
import sys
from pathlib import Path

BEGIN = "<!-- Generated from values.yaml by hack/render.sh. Do not edit. -->"
END = "<!-- Here it ends. -->"


def values(path):
    """Key, default and meaning of each value: a key with a comment above it. What is below such a key is its default."""
    parents, comment, rows = [], [], []
    for line in Path(path).read_text().splitlines():
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if text.startswith("#"):
            comment.append(text[1:].strip())
        elif not text:
            comment = []
        elif comment and (match := re.fullmatch(r"(\w+):\s*(.*)", text)):
            names = [name for level, name in parents if level < indent] + [match[1]]
            rows.append((".".join(names), match[2], " ".join(comment)))
            comment = []
        elif match := re.fullmatch(r"(\w+):", text):
            # A heading: its keys have the comments.
            parents = [(level, name) for level, name in parents if level < indent] + [(indent, match[1])]
    return rows


def readme(values_path, readme_path):
    table = ["| value | default | meaning |", "|---|---|---|"]
    for key, default, meaning in values(values_path):
        shown = f"`{default}`" if default else "see values.yaml"
        table.append(f"| `{key}` | {shown} | {meaning.replace('|', chr(92) + '|')} |")
    text = Path(readme_path).read_text()
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n\n" + "\n".join(table) + "\n\n" + END + rest.split(END)[1]


def strict(schema):
    """The same schema, which allows no field that the server does not know."""
    if not isinstance(schema, dict):
        return schema
    schema = dict(schema)
    for name in ("properties", "definitions"):
        if name in schema:
            schema[name] = {key: strict(value) for key, value in schema[name].items()}
    for name in ("items", "additionalProperties"):
        if name in schema:
            schema[name] = strict(schema[name])
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    return schema


def references(schema):
    return set(re.findall(r'"#/definitions/([^"]+)"', json.dumps(schema)))


def schemas(folder):
    definitions = {name: strict(schema) for name, schema in json.load(sys.stdin)["definitions"].items()}
    # Written without quotation marks, some are numbers.
    definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = {"type": ["string", "number"]}
    for name, schema in definitions.items():
        for kind in schema.get("x-kubernetes-group-version-kind", []):
            needed, rest = set(), references(schema)
            while rest:
                needed |= rest
                rest = set().union(*(references(definitions[name]) for name in rest)) - needed
            parts = [kind["kind"], kind["group"].split(".")[0], kind["version"]]
            whole = {**schema, "definitions": {name: definitions[name] for name in needed}}
            file = Path(folder) / ("-".join(part.lower() for part in parts if part) + ".json")
            file.write_text(json.dumps(whole))


def items(text):
    """Objects, from what kubectl prints: a list, or one after the other."""
    decoder, found = json.JSONDecoder(), []
    while text := text.strip():
        object, end = decoder.raw_decode(text)
        text = text[end:]
        found += object["items"] if object["kind"] == "List" else [object]
    return found


def pods():
    for object in items(sys.stdin.read()):
        if object["kind"] != "Deployment":
            continue
        template = object["spec"]["template"]
        # The one that each namespace has.
        template["spec"]["serviceAccountName"] = template["spec"]["serviceAccount"] = "default"
        metadata = {**template["metadata"], "name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"]}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def run():
    container = json.load(sys.stdin)["spec"]["template"]["spec"]["containers"][0]
    # As the kubelet has them: names of one's own variables come from somewhere else.
    variables = " ".join(shlex.quote(f"{one['name']}={one.get('value', '')}") for one in container.get("env", []))
    arguments = " ".join(map(shlex.quote, container.get("args", [])))
    return f"variables=({variables}) arguments=({arguments})"


def rights():
    """As tuples: namespace (empty: all), group and resource, name (empty: all), verb."""
    objects = items(sys.stdin.read())
    bound = {(one["roleRef"]["kind"], one["roleRef"]["name"]) for one in objects if one["kind"].endswith("RoleBinding")}
    found = set()
    for role in objects:
        metadata = role["metadata"]
        if (role["kind"], metadata["name"]) in bound:
            for rule in role["rules"]:
                resources = [(group, one) for group in rule["apiGroups"] for one in rule["resources"]]
                names = rule.get("resourceNames") or [""]
                found |= {
                    (metadata.get("namespace", ""), f"{group}/{resource}", name, verb)
                    for group, resource in resources for name in names for verb in rule["verbs"]
                }
    # Whoever may read all Secrets of a namespace may read a certain one.
    return sorted(one for one in found if not one[2] or (*one[:2], "", one[3]) not in found)


def main(command, *arguments):
    if command == "values":
        print(readme(*arguments), end="")
    elif command == "schemas":
        schemas(*arguments)
    elif command == "pod":
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods())}))
    elif command == "run":
        print(run())
    elif command == "rights":
        print("\n".join(" ".join(map(repr, one)) for one in rights()))
    else:
        sys.exit(__doc__)


main(*sys.argv[1:])
