#!/usr/bin/env python3
"""A program that talks JSON: it reports progress, asks a question and makes an artifact.

attache serve --config examples/agents/book_table.yml
attache chat http://127.0.0.1:3111
"""
import json
import sys


def write(**event):
    print(json.dumps(event), flush=True)


def read():
    return json.loads(sys.stdin.readline())


write(type="status", text="looking for a free table")
request = read()
write(type="ask", text="For how many people?")
# The answer arrives in the same process, as long as it runs.
people = read()["text"]
if not people.isdigit():
    write(type="fail", text=f"{people} is not a number of people")
else:
    write(type="artifact", name="booking", data={"people": int(people), "request": request["text"]})
    write(type="complete", text="See you soon.")
