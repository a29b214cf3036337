"""Leads schemathesis to things that exist: it cannot guess ids. Only what it means to be right is replaced; what it makes wrong on
purpose stays wrong."""

import itertools
import json
import os

import schemathesis

with open(os.environ["ACPD_SEEDS"]) as file:
    SEEDS = json.load(file)

COUNT = itertools.count()

# Which seed a parameter of a path is, by the beginning of the path that it ends.
NAMES = {
    "/v1/workspaces/{id}": "workspace",
    "/v1/permissions/{id}": "permission",
    "{permission}": "permission",
    "{turn}": "turn",
    "{rule}": "rule",
    "{sha256}": "blob",
    "{slug}": "agent",
    "/v1/sessions/{id}": "session",
}

# Operations whose ids must be others: what ends a session leaves the rest alone, and what answers needs a question.
OTHERS = {
    "archiveSession": {"session": "doomed"},
    "removeSession": {"session": "doomed"},
    "cancelTurn": {"session": "busy"},
    "revokeRule": {"session": "ruled"},
    "listRules": {"session": "ruled"},
    "answerPermission": {"permission": "question"},
    "answerSessionPermission": {"session": "asking", "permission": "otherQuestion"},
}


def is_meant_well(case, location):
    if case.meta is None:
        return False
    known = {str(place.value): info.mode.is_positive for place, info in case.meta.components.items()}
    return known.get(location, True)


@schemathesis.hook
def before_call(context, case, kwargs):
    operation = case.operation.definition.raw.get("operationId")
    # One in four goes where nothing is.
    if case.path_parameters and is_meant_well(case, "path") and next(COUNT) % 4:
        for name in list(case.path_parameters):
            ending = case.operation.path.split("{" + name + "}")[0] + "{" + name + "}"
            seed = next((seed for end, seed in NAMES.items() if ending.endswith(end)), None)
            if seed:
                case.path_parameters[name] = SEEDS[OTHERS.get(operation, {}).get(seed, seed)]
    # A stream that follows does not end.
    if operation in ("followAll", "followSession"):
        query = case.query if isinstance(case.query, dict) else {}
        if "follow" not in query or is_meant_well(case, "query"):
            case.query = {**query, "follow": "false"}
    body = case.body
    if isinstance(body, dict):
        if operation == "createSession" and is_meant_well(case, "body"):
            body.pop("workspaceId", None)
            body.update(workspace=SEEDS["directory"], agent=SEEDS["agent"], start="lazy")
        if operation == "registerWorkspace" and is_meant_well(case, "body") and next(COUNT) % 2:
            body["path"] = SEEDS["directory"]
        if operation in ("answerPermission", "answerSessionPermission") and is_meant_well(case, "body") and next(COUNT) % 2:
            case.body = {"decision": "allow"}
        # Nothing is to be written anywhere but into the test's own directory.
        if operation == "createBackup" and isinstance(body.get("path"), str) and body["path"].startswith("/"):
            body["path"] = f"{SEEDS['directory']}/copy-{next(COUNT)}"
