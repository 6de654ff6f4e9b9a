"""The Django admin of flows: nodes as a tree, why each does not run, and what to press.

As that of the queue, it shows the default instance's database; for another one, register the class
on a site of its own: `site.register(Node, NodeAdmin, using="other")`.
"""

from hipq_django.flow.admin.nodes import NodeAdmin as NodeAdmin
from hipq_django.flow.admin.stored_graphs import GraphAdmin as GraphAdmin
