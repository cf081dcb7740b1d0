#!/usr/bin/env python3
# Prints a header section and "Hello World!".
print("Content-Type: text/html\r\n\r\n<html><body><h1>Hello World!</h1></body></html>")
