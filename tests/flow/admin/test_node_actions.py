"""What operators do to nodes: each action with its permission and without it."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.models import Node
from tests.admin_pages import (
    act,
    confirm,
    history,
    html,
    list_url,
    log_in,
    messages_of,
    page_url,
)
from tests.flow.conftest import in_status

pytestmark = pytest.mark.django_db


def terminate(client: Client, node: Node, **sent: str) -> Any:
    return confirm(client, "terminate", node, **sent)


# Every verb asks first


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
    refused = confirm(client, "run_by_force", child, ancestors=[middle.pk]).content.decode()
    assert "Select a valid choice" in refused
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
    node = flow.start("t.sum", run=False)

    assert "With all nodes below it" in html(client, page_url(node, "terminate"))
    response = terminate(client, node, extent="nonsense")
    assert "Select a valid choice" in response.content.decode()
    assert (node.status, history(node)) == ("completed", [])


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("sent", "statuses", "done"),
    [
        ({"extent": "node"}, ("terminating", "completed"), "Set to terminate."),
        ({"extent": "node", "force": "on"}, ("terminated", "completed"),
         "Set to terminate by force."),
        ({"extent": "tree"}, ("terminating", "terminating"), "Set to terminate with its tree."),
        ({"extent": "delete"}, ("", ""), "Set to terminate with its tree and to be deleted."),
    ],
)  # fmt: skip
def test_terminate_goes_as_far_as_it_was_told(
    client: Client, sent: dict[str, str], statuses: tuple[str, str], done: str
) -> None:
    log_in(client, "view_node", "terminate_node")
    parent = flow.start("t.sum", run=False)
    child = parent.spawn("child", "t.sum", run=False)

    terminate(client, parent, **sent)

    assert history(parent) == [done]
    if sent["extent"] == "delete":
        testing.drain()
        assert not Node.objects.exists()
    else:
        assert (parent.status, child.status) == statuses


# From the list


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


# Without


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
