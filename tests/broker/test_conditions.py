"""What a broker cannot do now."""

from barnabas_broker.conditions import Condition, ConditionName, Conditions

FULL = Condition(ConditionName.DISK_FULL, "the disk is full")
SLOW = Condition(ConditionName.METADATA_SLOW, "etcd is slow", ready=True)


def test_the_conditions_of_all_parts_are_those_of_the_broker() -> None:
    conditions = Conditions()
    assert conditions.now() == []
    parts: dict[str, list[Condition]] = {"disk": [], "etcd": [SLOW]}
    conditions.add(lambda: parts["disk"])
    conditions.add(lambda: parts["etcd"])
    assert conditions.now() == [SLOW]
    parts["disk"] = [FULL]
    assert conditions.now() == [FULL, SLOW]


def test_a_broker_that_shuts_down_says_only_that() -> None:
    conditions = Conditions()
    conditions.add(lambda: [FULL])
    conditions.stopping = True
    (only,) = conditions.now()
    assert (only.name, only.ready) == (ConditionName.STOPPING, False)
