"""Runs a script of tlsfuzzer with one HTTP exchange before its own messages.

    PYTHONPATH=CHECKOUT python after_exchange.py SCRIPT [OPTION...]

The exchange is a request with keep-alive, right after the client's Finished. Without it the script
meets the server before the first application data, with it a connection that has served a request.
"""

import importlib
import sys

from tlsfuzzer.expect import ExpectApplicationData, ExpectNewSessionTicket
from tlsfuzzer.messages import ApplicationDataGenerator, FinishedGenerator

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def first_finished(node):
    """Returns the client's first Finished in the chain of messages that begins with `node`, or None."""
    while node is not None and not isinstance(node, FinishedGenerator):
        # An optional message that may be repeated is its own child.
        node = node.child if node.child is not node else None
    return node


def insert_exchange(conversation):
    """Inserts an HTTP exchange after the first Finished, unless the chain has the exchange already."""
    finished = first_finished(conversation)
    if finished is None or finished.child is None or hasattr(finished, "has_exchange"):
        return
    finished.has_exchange = True
    rest = finished.child
    ticket = ExpectNewSessionTicket()
    node = finished.add_child(ApplicationDataGenerator(bytearray(REQUEST)))
    node.add_child(ticket)
    ticket.add_child(ticket)
    ticket.next_sibling = ExpectApplicationData()
    ticket.next_sibling.child = rest


def main():
    name = sys.argv[1]
    script = importlib.import_module("tlsfuzzer._apps." + name.replace("-", "_"))
    plain_runner = script.Runner

    def runner(conversation):
        insert_exchange(conversation)
        return plain_runner(conversation)

    script.Runner = runner
    sys.argv = sys.argv[1:]
    script.main()


if __name__ == "__main__":
    main()
