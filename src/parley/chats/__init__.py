"""The Assistant's use cases as verbs."""

from parley.chats.answers import AnswerForm, parse_answer
from parley.chats.cancel import cancel_turn, delete_chat, erase_chat
from parley.chats.context import Chats
from parley.chats.read import (
    Opened,
    TurnReceipt,
    chat_state,
    check_run,
    list_chats,
    open_chat,
    rename_chat,
    run_receipt,
    whole_result,
    wire_status,
)
from parley.chats.resume import resume_turn
from parley.chats.start import start_turn

__all__ = [
    "AnswerForm",
    "Chats",
    "Opened",
    "TurnReceipt",
    "cancel_turn",
    "chat_state",
    "check_run",
    "delete_chat",
    "erase_chat",
    "list_chats",
    "open_chat",
    "parse_answer",
    "rename_chat",
    "resume_turn",
    "run_receipt",
    "start_turn",
    "whole_result",
    "wire_status",
]
