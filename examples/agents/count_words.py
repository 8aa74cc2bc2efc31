#!/usr/bin/env python3
"""A program as an agent: reads the text of the message and writes the answer.

attache serve --program examples/agents/count_words.py
attache send http://127.0.0.1:3111 "how many words is this"
"""
import sys

words = sys.stdin.read().split()
print(f"{len(words)} words, {len(set(words))} different ones")
