"""A turn for front ends that know nothing but text: its events as they come, its questions in words."""

from parley.chats.plain.follow import Happened, follow
from parley.chats.plain.spoken import answer_in_words, question_in_words

__all__ = ["Happened", "answer_in_words", "follow", "question_in_words"]
