"""The file of ``--init``: what it may have, and the line of every mistake."""

from pathlib import Path

import pytest

from barnabas_broker.init.document import Declared, InitError, read
from barnabas_broker.init.seeds import SeedRecord, records_of
from barnabas_protocol.acls import AclOperation, AclPatternType, AclPermissionType

WHOLE = """
topics:
  orders:
    partitions: 6
    config:
      retention.ms: 604_800_000
      cleanup.policy: compact
      unclean.leader.election.enable: yes
  audit:
  "true": {partitions: 1}
users:
  ada: {password: lovelace}
  bob: {password_file: bob.password}
acls:
  ada: [read topic orders, deny write topic orders-*]
quotas:
  - {user: ada, client_id: <default>, producer_byte_rate: 1_000_000, request_percentage: 12.5}
groups:
  billing: {orders: earliest, audit: 7}
  late:
    orders: {0: 10, 5: 20}
"""


def document(folder: Path, text: str) -> Declared:
    file = folder / "init.yaml"
    file.write_text(text, encoding="utf-8")
    return read(file)


def records(folder: Path, text: str) -> list[SeedRecord]:
    return [record for topic in document(folder, text).topics for seed in topic.seeds for record in records_of(seed)]


def test_everything_that_it_may_have(tmp_path: Path) -> None:
    (tmp_path / "bob.password").write_text("builder\nnot this\n")
    declared = document(tmp_path, WHOLE.replace("604_800_000", "604800000"))
    orders, audit, odd = declared.topics
    assert (orders.name, orders.place.line, orders.partitions) == ("orders", 3, 6)
    assert orders.config == {
        "retention.ms": "604800000",
        "cleanup.policy": "compact",
        "unclean.leader.election.enable": "true",
    }
    assert (audit.name, audit.partitions, audit.config) == ("audit", None, {})
    assert odd.name == "true"
    assert declared.users == {"ada": "lovelace", "bob": "builder"}
    (place, read_acl), (_, denied) = declared.acls
    assert (place.line, read_acl.principal, read_acl.operation) == (15, "User:ada", AclOperation.READ)
    assert (denied.permission, denied.pattern_type) == (AclPermissionType.DENY, AclPatternType.PREFIXED)
    (quota,) = declared.quotas
    assert quota.entity == {"user": "ada", "client-id": None}
    assert quota.values == {"producer_byte_rate": 1_000_000.0, "request_percentage": 12.5}
    assert [(each.group, each.topic, each.offset) for each in declared.offsets] == [
        ("billing", "orders", "earliest"),
        ("billing", "audit", 7),
        ("late", "orders", {0: 10, 5: 20}),
    ]


def test_an_empty_file_declares_nothing(tmp_path: Path) -> None:
    for text in ("", "# nothing\n", "topics:\nusers:\n"):
        declared = document(tmp_path, text)
        assert declared.topics == []
        assert declared.users == {}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("topics:\n  - orders\n", "2: topics must be a mapping (name: value)"),
        ("topic:\n  orders:\n", "1: the file has no topic, did you mean topics?"),
        ("x:\n  orders:\n", "1: the file has no x: give one of topics, users, acls, quotas, groups"),
        ("topics:\n  a:\n  b:\n  a:\n", "4: a is given twice, in line 2 as well"),
        ("topics:\n  a:\n    partition: 3\n", "3: topic a has no partition, did you mean partitions?"),
        ("topics:\n  a:\n    partitions: 0\n", "3: partitions must be a whole number from 1 on, got 0"),
        ("topics:\n  a:\n    partitions: many\n", "3: partitions must be a whole number from 1 on, got many"),
        ("topics:\n  a:\n    config:\n      retention: 3\n", "4: config has no retention, did you mean retention."),
        ("topics:\n  a:\n    config: {retention.ms: x}\n", "3: retention.ms='x': not a whole number"),
        ("topics:\n  a:\n    config: {retention.ms: }\n", "3: retention.ms must be text"),
        ("topics:\n  a: {records: x.txt}\n", "2: x.txt: a file of records must end with .jsonl or .csv"),
        ("topics:\n  a:\n    records:\n    - no.csv\n", "no.csv: there is no such file"),
        ("topics:\n  a: {records: [{key: x}]}\n", "2: records must have a file, or a value"),
        ("users:\n  ada: {}\n", "2: user ada: give password, or password_file"),
        ("users:\n  ada: {password: ''}\n", "2: user ada: its password is empty"),
        ("users:\n  ada: {password_file: gone}\n", "gone: [Errno 2]"),
        ("acls:\n  ada:\n    - read topics orders\n", "3: acls: 'read topics orders': there is no 'TOPICS'"),
        ("acls:\n  ada: read topic orders\n", "2: the ACLs of ada must be a list (- item)"),
        ("quotas:\n  - {user: ada}\n", "2: a quota needs user, client_id or ip, and a limit such as"),
        ("quotas:\n  - {user: ada, producer_byte_rate: x}\n", "2: producer_byte_rate must be a number, got x"),
        ("quotas:\n  - {user: ada, producer_rate: 1}\n", "2: a quota has no producer_rate, did you mean"),
        ("groups:\n  g: {orders: first}\n", "2: an offset must be earliest, latest or a number, got first"),
        ("groups:\n  g: {orders: {x: 1}}\n", "2: a partition must be a number, got x"),
        ("topics: {a: [}\n", "1: not YAML: "),
        ("topics:\n\ta:\n", "2: not YAML: found character '\\t'"),
        ("topics: &all\n  a:\ngroups: *all\n", "3: an alias (*NAME) is not accepted: write it out"),
    ],
)
def test_every_mistake_has_its_line(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(InitError) as raised:
        document(tmp_path, text)
    where = f"{tmp_path / 'init.yaml'}:"
    assert str(raised.value).startswith(where)
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InitError, match="No such file"):
        read(tmp_path / "gone.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InitError, match="codec can't decode"):
        read(tmp_path / "binary.yaml")
    (tmp_path / "deep.yaml").write_text("[" * 100_000)
    with pytest.raises(InitError, match=r"deep.yaml:1: it is nested more than 32 times"):
        read(tmp_path / "deep.yaml")


def test_records_in_files_and_in_the_document(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"n": 1}\n\n{"key": "k", "value": {"a": [1]}, "headers": {"h": "x"}, "partition": 2, "timestamp": 5}\n'
        '{"value": null, "key": {"base64": "/w=="}}\n'
    )
    (tmp_path / "b.csv").write_text('id,text\n7,"one, two"\n')
    found = records(
        tmp_path,
        "topics:\n  t:\n    records:\n      - a.jsonl\n      - {file: b.csv, key: id}\n      - {value: hello, key: k}\n"
        "      - {value: {n: 1}}\n",
    )
    assert [(each.key, each.value, each.headers, each.partition, each.timestamp) for each in found] == [
        (None, b'{"n": 1}', (), None, None),
        (b"k", b'{"a":[1]}', (("h", b"x"),), 2, 5),
        (b"\xff", None, (), None, None),
        (b"7", b'{"id":"7","text":"one, two"}', (), None, None),
        (b"k", b"hello", (), None, None),
        (None, b'{"n":1}', (), None, None),
    ]
    assert [(each.place.file.name, each.place.line) for each in found[:4]] == [
        ("a.jsonl", 1),
        ("a.jsonl", 3),
        ("a.jsonl", 4),
        ("b.csv", 2),
    ]


@pytest.mark.parametrize(
    ("name", "content", "key", "error"),
    [
        ("a.jsonl", '{"n": 1}\n{"n": \n', None, "a.jsonl:2: not JSON: "),
        ("a.jsonl", "[" * 5_000, None, "a.jsonl:1: not JSON: "),
        ("a.jsonl", '{"n": 1}\n', "id", "a.jsonl:1: it has no field id, which is the key"),
        (
            "a.jsonl",
            '{"value": 1, "partition": -1}\n',
            None,
            "a.jsonl:1: partition and timestamp must be whole numbers",
        ),
        ("a.jsonl", '{"value": 1, "headers": [1]}\n', None, "a.jsonl:1: headers must be a mapping of names and values"),
        ("a.jsonl", '{"value": {"base64": "?"}}\n', None, "a.jsonl:1: not base64: ?"),
        ("a.csv", "a,b\n1\n", None, "a.csv:2: it has another number of columns than the first line, which has 2"),
        ("a.csv", "a,b\n1,2\n", "id", "a.csv:1: it has no column id, which is the key; it has a, b"),
    ],
    ids=range(8),
)
def test_mistakes_in_files_of_records(tmp_path: Path, name: str, content: str, key: str | None, error: str) -> None:
    (tmp_path / name).write_text(content)
    of = f"{{file: {name}, key: {key}}}" if key else name
    with pytest.raises(InitError) as raised:
        records(tmp_path, f"topics:\n  t:\n    records:\n      - {of}\n")
    assert error in str(raised.value)
