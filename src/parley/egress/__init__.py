"""Every connection that leaves this process."""

from parley.egress.egress import Egress
from parley.egress.guard import Guard, Refused, Unreachable
from parley.egress.isolation import connection_problem
from parley.egress.request import Response

__all__ = ["Egress", "Guard", "Refused", "Response", "Unreachable", "connection_problem"]
