"""What turns, models, tools and knowledge cost: plans, the admission gate, the ledger, the wallet."""

from parley.billing.caps import ALLOWANCE, CapNear, cap_near
from parley.billing.denials import ApiRateDenied, CreditExhausted, Denial
from parley.billing.gate import ApiRate, admit, closed_on_outage, limit_of, require_room, reserve
from parley.billing.ledger import release
from parley.billing.metering import (
    ModelCall,
    ToolUse,
    charge_ingest,
    charge_retrieval,
    charge_tool,
    hold_model,
    settle_model,
)
from parley.billing.plans import Plans, credits_text, load_plans
from parley.billing.usage import Breakdown, turn_receipt

__all__ = [
    "ALLOWANCE",
    "ApiRate",
    "ApiRateDenied",
    "Breakdown",
    "CapNear",
    "CreditExhausted",
    "Denial",
    "ModelCall",
    "Plans",
    "ToolUse",
    "admit",
    "cap_near",
    "charge_ingest",
    "charge_retrieval",
    "charge_tool",
    "closed_on_outage",
    "credits_text",
    "hold_model",
    "limit_of",
    "load_plans",
    "release",
    "require_room",
    "reserve",
    "settle_model",
    "turn_receipt",
]
