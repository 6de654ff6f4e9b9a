"""What operators do to nodes: each action with its permission and without it."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from hipq_django import flow
from hipq_django.admin import selection
from hipq_django.flow import testing
from hipq_django.flow.admin.node_actions import VERBS
from hipq_django.flow.models import Node, Wake
from tests.admin_pages import (
    act,
    confirm,
    history,
    html,
    list_url,
    log_in,
    messages_of,
    page_url,
    press,
)
from tests.copying import copy
from tests.flow.conftest import in_status

pytestmark = pytest.mark.django_db

EVERYTHING = (
    "view_node", "run_node", "terminate_node", "edit_node", "edit_graph", "read_port",
    "write_port", "view_message", "change_message", "delete_message",
)  # fmt: skip

NEEDS = {
    "run": "run_node",
    "run_by_force": "run_node",
    "pause": "run_node",
    "resume": "run_node",
    "terminate": "terminate_node",
}


def without(*permissions: str) -> list[str]:
    return [name for name in EVERYTHING if name not in permissions]


def terminate(client: Client, node: Node, **sent: str) -> Any:
    return confirm(client, "terminate", node, **sent)


def ready_for(verb: str) -> Node:
    """Return a node to which this can be done."""
    node = in_status("failed" if verb == "run_by_force" else "completed")
    if verb == "resume":
        node.pause()
    return node


def standing(node: Node) -> tuple[str, bool, int]:
    """Return what a verb changes of a node."""
    wakes = Wake.objects.filter(node=node.pk).count()
    return node.status, Node.objects.get(pk=node.pk).paused, wakes


# Every verb asks first


@pytest.mark.parametrize("verb", NEEDS)
def test_a_button_leads_to_a_page_that_says_what_will_happen(client: Client, verb: str) -> None:
    log_in(client, "view_node", NEEDS[verb])
    node = ready_for(verb)
    before = standing(node)
    assert f'href="{page_url(node, verb)}"' in html(client, page_url(node))

    page = html(client, page_url(node, verb)).partition("</header>")[2]

    label = str(VERBS[verb].label)
    assert f"{label}: node {node.pk}?" in page
    assert str(VERBS[verb].warning(node))[:40] in page
    assert f">{node.status}</span>" in page
    assert f">{label}</button>" in page
    assert (standing(node), history(node)) == (before, [])


def test_nothing_is_done_before_it_is_confirmed(admin_client: Client) -> None:
    for verb in NEEDS:
        node = ready_for(verb)
        before = standing(node)

        for sent in ({}, {"confirmed": ""}, {"extent": "node"}):
            from_page = admin_client.post(page_url(node, verb), sent)
            for response in (from_page, act(admin_client, verb, node, **sent)):
                assert response.status_code == 200
                assert f">{VERBS[verb].label}</button>" in response.content.decode()
                assert (standing(node), history(node)) == (before, []), (verb, sent)


@pytest.mark.conformance
@pytest.mark.parametrize("verb", NEEDS)
def test_what_is_confirmed_is_done_and_recorded(client: Client, verb: str) -> None:
    log_in(client, "view_node", NEEDS[verb])
    for from_page in (True, False):
        node = ready_for(verb)
        before = standing(node)

        if from_page:
            response = confirm(client, verb, node, extent="node")
        else:
            response = act(client, verb, node, confirmed="1", extent="node")

        done = str(VERBS[verb].done)
        assert messages_of(response) == [f"{done}: {f'node {node.pk}' if from_page else '1 node'}."]
        assert history(node) == [f"{done}."]
        assert standing(node) != before


def test_a_node_to_which_nothing_is_to_be_done_has_no_button_for_it(client: Client) -> None:
    log_in(client, "view_node", "run_node")
    one, other = flow.start("t.sum", run=False), in_status("failed")

    both = act(client, "run", one, other).content.decode()

    assert both.count("is left as it is") == 1
    assert ">Run</button>" in both
    assert messages_of(confirm(client, "resume", one)) == [
        f"node {one.pk} was left as it is: there is nothing to do."
    ]
    assert history(one) == []


# What each does


def test_run_lets_a_node_run(client: Client) -> None:
    log_in(client, "view_node", "run_node")
    node = in_status("completed")

    confirm(client, "run", node)

    assert testing.due(node) == 1


def test_run_by_force_lets_a_node_run_that_does_not_by_itself(client: Client) -> None:
    log_in(client, "view_node", "run_node")
    for status in ("failed", "terminated"):
        node = in_status(status)
        assert page_url(node, "run") not in html(client, page_url(node))

        confirm(client, "run", node)
        assert testing.due(node) == 0
        assert history(node) == []
        confirm(client, "run_by_force", node)

        assert testing.due(node) == 1
        assert history(node) == ["Set to run by force."]


@pytest.fixture
def family() -> tuple[Node, Node, Node]:
    """A failed node above one that is well, above a failed one."""
    root = in_status("failed")
    middle = root.spawn("middle", "t.sum", run=False)
    child = in_status("failed")
    middle.adopt(child, "child")
    return root, middle, child


def test_run_by_force_offers_failed_ancestors_and_takes_none_by_itself(
    client: Client, family: tuple[Node, Node, Node]
) -> None:
    log_in(client, "view_node", "run_node")
    root, middle, child = family
    page = html(client, page_url(child, "run_by_force"))

    assert f'name="ancestors" value="{root.pk}"' in page
    assert f'name="ancestors" value="{middle.pk}"' not in page
    assert "checked" not in page
    confirm(client, "run_by_force", child)

    assert (root.status, child.status) == ("failed", "queued")
    assert history(root) == []


@pytest.mark.conformance
@pytest.mark.parametrize("from_page", [True, False], ids=["page", "list"])
def test_run_by_force_runs_the_ancestors_that_were_chosen(
    client: Client, family: tuple[Node, Node, Node], from_page: bool
) -> None:
    log_in(client, "view_node", "run_node")
    root, middle, child = family

    if from_page:
        response = confirm(client, "run_by_force", child, ancestors=[root.pk])
    else:
        response = act(client, "run_by_force", child, confirmed="1", ancestors=[root.pk])

    said = ["1 node", f"node {child.pk}"] if from_page else ["2 nodes"]
    assert messages_of(response) == [f"Set to run by force: {what}." for what in said]
    assert (root.status, child.status) == ("queued", "queued")
    assert history(root) == history(child) == ["Set to run by force."]
    assert history(middle) == []


def test_run_by_force_takes_no_other_nodes(client: Client, family: tuple[Node, Node, Node]) -> None:
    log_in(client, "view_node", "run_node")
    stranger, child = in_status("failed"), family[2]

    page = confirm(client, "run_by_force", child, ancestors=[stranger.pk]).content.decode()

    assert "Select a valid choice" in page
    assert stranger.status == child.status == "failed"
    assert history(stranger) == history(child) == []


def test_run_by_force_offers_no_graph_which_follows_its_children(client: Client) -> None:
    log_in(client, "view_node", "run_node")
    graph = flow.start({"nodes": {"a": {"component": "flow.split"}}})
    graph.children["a"].inputs["in"].write({"no": "text"})
    testing.drain(errors=False)
    assert graph.status == "failed"

    assert "ancestors" not in html(client, page_url(graph.children["a"], "run_by_force"))


def test_a_failed_graph_is_run_without_force(client: Client) -> None:
    log_in(client, "view_node", "run_node")
    graph = flow.start({"nodes": {"a": {"component": "t.cards", "init": True}}})
    graph.children["a"].inputs["order"].write({"bad": True, "card": "4", "id": 1})
    testing.drain(errors=False)
    page = html(client, page_url(graph))
    assert page_url(graph, "run_by_force") not in page
    assert page_url(graph, "run") in page

    confirm(client, "run", graph)

    assert testing.due(graph) == 1


@pytest.mark.conformance
def test_pause_and_resume(client: Client) -> None:
    log_in(client, "view_node", "run_node")
    node = flow.start("t.double", run=False)

    confirm(client, "pause", node)
    node.inputs["number"].write(1)
    assert testing.due(node) == 0
    page = html(client, page_url(node))
    assert "It is paused; messages wait until it is resumed." in page
    assert page_url(node, "run") not in page
    confirm(client, "resume", node)

    assert testing.due(node) == 1
    assert history(node) == ["Paused.", "Resumed."]


def test_terminate_asks_first_what_is_meant(client: Client) -> None:
    log_in(client, "view_node", "terminate_node")
    parent = flow.start("t.sum", run=False)
    child = parent.spawn("child", "t.sum", run=False)

    page = html(client, page_url(parent, "terminate"))
    assert "With all nodes below it" in page
    response = terminate(client, parent, extent="nonsense")
    assert "Select a valid choice" in response.content.decode()
    assert (parent.status, history(parent)) == ("completed", [])
    terminate(client, parent, extent="node")

    assert (parent.status, child.status) == ("terminating", "completed")
    assert history(parent) == ["Set to terminate."]


@pytest.mark.conformance
def test_terminate_with_the_tree(client: Client) -> None:
    log_in(client, "view_node", "terminate_node")
    parent = flow.start("t.sum", run=False)
    child = parent.spawn("child", "t.sum", run=False)

    terminate(client, parent, extent="tree")

    assert (parent.status, child.status) == ("terminating", "terminating")
    assert history(parent) == ["Set to terminate with its tree."]


@pytest.mark.conformance
def test_terminate_and_delete(client: Client) -> None:
    log_in(client, "view_node", "terminate_node")
    parent = flow.start("t.sum", run=False)
    child = parent.spawn("child", "t.sum", run=False)

    terminate(client, parent, extent="delete")
    testing.drain()

    assert not parent.exists()
    assert not child.exists()
    assert history(parent) == ["Set to terminate with its tree and to be deleted."]


def test_terminate_by_force_calls_no_code(client: Client, recorder: Any) -> None:
    from tests.testapp.flows import Recorder

    log_in(client, "view_node", "terminate_node")
    node = recorder()

    terminate(client, node, extent="node", force="on")

    assert node.status == "terminated"
    assert Recorder.calls == []
    assert history(node) == ["Set to terminate by force."]


# From the list


def test_an_action_takes_several_nodes_and_says_which_were_left(client: Client) -> None:
    log_in(client, "view_node", "run_node")
    one, other = flow.start("t.sum", run=False), in_status("failed")

    response = act(client, "run", one, other, confirmed="1")

    left = f"node {other.pk} was left as it is: there is nothing to do."
    assert messages_of(response) == ["Set to run: 1 node.", left]
    assert testing.due(one) == 1


def test_an_action_reaches_children_that_stand_beneath_their_parent(client: Client) -> None:
    log_in(client, "view_node", "run_node")
    parent = flow.start("t.sum", run=False)
    child = parent.spawn("child", "t.sum", run=False)

    act(client, "pause", child, confirmed="1")

    assert Node.objects.get(pk=child.pk).paused
    assert not Node.objects.get(pk=parent.pk).paused


@pytest.mark.conformance
def test_all_nodes_of_the_tree_are_its_roots(client: Client) -> None:
    log_in(client, "view_node", "run_node")
    parent = flow.start("t.sum", run=False)
    child = parent.spawn("child", "t.sum", run=False)

    page = act(client, "pause", parent, select_across="1").content.decode()
    assert f'value="{parent.pk}"' in page
    assert f'value="{child.pk}"' not in page
    act(client, "pause", parent, confirmed="1")

    assert Node.objects.get(pk=parent.pk).paused
    assert not Node.objects.get(pk=child.pk).paused


def test_terminate_from_the_list_asks_first(client: Client) -> None:
    log_in(client, "view_node", "terminate_node")
    one, other = flow.start("t.sum", run=False), flow.start("t.sum", run=False)

    page = act(client, "terminate", one, other)
    assert "Terminate: 2 nodes?" in page.content.decode()
    assert one.status == "completed"
    act(client, "terminate", one, other, confirmed="1", extent="node")

    assert {one.status, other.status} == {"terminating"}
    assert history(one) == history(other) == ["Set to terminate."]


def test_an_action_takes_as_many_nodes_as_a_form_brings_back(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(client, "view_node", "run_node")
    first = flow.start("t.sum", run=False)
    copy(Node.objects.get(pk=first.pk), selection.MAX_ROWS - 1)
    nodes = list(Node.objects.all())
    page = act(client, "pause", *nodes).content.decode()
    assert f"Pause: {selection.MAX_ROWS} nodes?" in page
    assert "and 890 more" in page

    assert act(client, "pause", *nodes, confirmed="1").status_code == 200
    assert Node.objects.filter(paused=True).count() == selection.MAX_ROWS
    monkeypatch.setattr(selection, "MAX_ROWS", 2)
    assert messages_of(act(client, "resume", *nodes[:3], confirmed="1")) == [
        "Nothing was done: select at most 2 nodes at a time."
    ]


@pytest.mark.conformance
def test_nodes_that_have_left_the_list_meanwhile_are_told(client: Client) -> None:
    log_in(client, "view_node", "run_node")
    node = in_status("failed")
    node.run(force=True)
    sent = {"action": "run_by_force", "_selected_action": [node.pk], "confirmed": "1"}

    response = client.post(f"{list_url(Node)}?status=failed", sent, follow=True)

    assert messages_of(response) == [
        "1 selected node was left as it is: it is not in this list any more."
    ]


# Without


@pytest.mark.parametrize("lacks", ["run_node", "terminate_node", "view_node"])
def test_without_the_permission_nothing_happens(client: Client, lacks: str) -> None:
    log_in(client, *without(lacks))
    for verb in [verb for verb, needed in NEEDS.items() if lacks in (needed, "view_node")]:
        node = ready_for(verb)
        before = standing(node)

        assert client.get(page_url(node, verb)).status_code == 403
        assert press(client, verb, node).status_code == 403
        assert confirm(client, verb, node, extent="node").status_code == 403
        sent = {"action": verb, "_selected_action": [node.pk], "confirmed": "1", "extent": "node"}
        from_list = client.post(list_url(Node), sent)

        assert from_list.status_code == (403 if lacks == "view_node" else 302)
        assert (standing(node), history(node)) == (before, []), verb
        if lacks != "view_node":
            assert page_url(node, verb) not in html(client, page_url(node))


def test_who_may_only_view_sees_no_button(client: Client) -> None:
    log_in(client, "view_node")
    node = flow.start("t.sum", run=False, data={"number": [1]})
    port = node.inputs["number"].row

    for url in (page_url(node), f"{list_url(Node)}{node.pk}/port/{port.pk}/"):
        page = html(client, url).partition("</header>")[2]
        assert 'type="submit"' not in page
        assert "Terminate" not in page
    assert client.get(f"{list_url(Node)}{node.pk}/graph/").status_code == 403
    assert 'name="action"' not in html(client, list_url(Node))


def test_nobody_adds_edits_or_deletes(admin_client: Client) -> None:
    node = flow.start("t.sum", run=False)

    assert admin_client.get(list_url(Node) + "add/").status_code == 403
    assert admin_client.post(page_url(node), {"job_type": 1}).status_code == 403
    assert admin_client.post(page_url(node, "delete"), {"post": "yes"}).status_code == 403
    assert node.exists()


@pytest.mark.conformance
def test_a_node_that_is_not_there_leads_to_the_list(admin_client: Client) -> None:
    for pk in ("999999", "abc", "9" * 30, "1_2"):
        for page, method in (("run", "post"), ("terminate", "get"), ("graph", "get")):
            response = getattr(admin_client, method)(f"{list_url(Node)}{pk}/{page}/", follow=True)
            assert response.redirect_chain == [(list_url(Node), 302)]
            assert messages_of(response) == [f"There is no node {pk}."]
