"""Cases 1 to 10: how nodes are found."""

import pytest

from hipq_django import flow
from hipq_django.flow import testing
from tests.testapp.flows import Double

pytestmark = pytest.mark.django_db


def test_case_001() -> None:
    for missing in (12345, "12345", "1abc", "nobody", "", "٣", 1 << 70):
        assert flow.find(missing) is None
        with pytest.raises(flow.UnknownNodeError, match="there is no node"):
            flow.get(missing)


def test_case_002() -> None:
    node, other = flow.start(Double), flow.start(Double)

    assert flow.get(node.pk) == node == flow.get(str(node.pk))
    assert hash(flow.get(node.pk)) == hash(node)
    assert {node: 1}[flow.get(node.pk)] == 1
    assert node != other


def test_case_003() -> None:
    first, second = flow.start(Double), flow.start(Double)

    assert first.pk < second.pk


def test_case_004() -> None:
    node = flow.start(Double)
    pk = node.pk
    node.terminate()
    testing.drain()

    assert node.delete()
    assert not node.exists()
    assert flow.find(pk) is None


def test_case_005() -> None:
    node = flow.start(Double)
    node.aliases.add("abc")
    node.aliases.add("xyz")

    assert list(node.aliases) == ["abc", "xyz"]
    assert flow.get("abc") == flow.get("xyz") == node


def test_case_006() -> None:
    node = flow.start(Double, alias="abc")
    node.aliases.add("abc")

    assert list(node.aliases) == ["abc"]


def test_case_007() -> None:
    first, second = flow.start(Double, alias="abc"), flow.start(Double)

    with pytest.raises(flow.AliasTakenError, match=f"node {first.pk}") as caught:
        second.aliases.add("abc")
    assert caught.value.node == first
    assert flow.get("abc") == first
    assert not list(second.aliases)


@pytest.mark.parametrize("name", ["1234", "!", "", None, "a" * 201, "a\0", "a\ud800"])
def test_case_008(name: str) -> None:
    node = flow.start(Double)

    with pytest.raises(flow.InvalidAliasError, match="begins with a letter"):
        node.aliases.add(name)
    node.aliases.add("élan")
    assert flow.get("élan") == node


def test_case_009() -> None:
    node = flow.start(Double)
    node.aliases.add("abc")
    node.aliases.add("xyz")
    node.aliases.remove("xyz")

    assert list(node.aliases) == ["abc"]
    with pytest.raises(flow.InvalidAliasError, match="it has 'abc'"):
        node.aliases.remove("unknown")


def test_case_010() -> None:
    node = flow.start(Double, alias="abc")
    node.terminate()
    testing.drain()
    node.delete()

    assert flow.find("abc") is None
    assert flow.get(flow.start(Double, alias="abc").pk) == flow.get("abc")


def test_an_alias_that_is_there_is_returned_if_that_is_wanted() -> None:
    first = flow.start(Double, alias="shop", on_conflict="return")

    assert flow.start(Double, alias="shop", on_conflict="return") == first
    with pytest.raises(flow.AliasTakenError):
        flow.start(Double, alias="shop")
    assert flow.Node.objects.count() == 1
