"""Counts the words of a text that is sent to it."""
import html
import sys
from urllib.parse import parse_qs

text = parse_qs(sys.stdin.read()).get("text", [""])[0]
print("Content-Type: text/html; charset=utf-8\n")
print("<!DOCTYPE html><title>Words</title><form method=post>")
print(f"<textarea name=text>{html.escape(text)}</textarea><button>Count</button></form>")
if text:
    print(f"<p>{len(text.split())} words")
