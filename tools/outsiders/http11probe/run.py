"""Runs Http11Probe's cases against a server: run.py CHECKOUT HOST PORT OUT [ID...]

The cases are read out of the checkout's C# source at run time; sending, reading and judging are as in its
own runner (src/Http11Probe/Runner/TestRunner.cs, Client/RawTcpClient.cs, Response/ResponseParser.cs).
"""
import os
import select
import socket
import sys
import time

import csharp
from csharp import Record

SUITES = [
    ('ComplianceSuite', 'GetTestCases'), ('SmugglingSuite', 'GetTestCases'),
    ('SmugglingSuite', 'GetSequenceTestCases'), ('MalformedInputSuite', 'GetTestCases'),
    ('NormalizationSuite', 'GetTestCases'), ('CapabilitiesSuite', 'GetSequenceTestCases'),
    ('CookieSuite', 'GetTestCases'),
]
TIMEOUT_SECONDS = 5
BUFFER_BYTES = 65_536


class Folded(dict):
    """A dictionary of header fields with case-insensitive names."""
    def __init__(self):
        super().__init__()
        self.names = {}

    def add(self, name, value):
        name = self.names.setdefault(name.lower(), name)
        self[name] = f"{self[name]}, {value}" if name in self else value

    def get(self, name, default=None):
        return super().get(self.names.get(name.lower(), name), default)

    def __contains__(self, name):
        return super().__contains__(self.names.get(str(name).lower(), name))


class Client:
    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def is_readable(self):
        return bool(select.select([self.socket], [], [], 0)[0])

    def read(self):
        """Reads a response; returns its bytes and the state of the connection."""
        data, ends = b'', time.monotonic() + TIMEOUT_SECONDS
        try:
            while len(data) < BUFFER_BYTES:
                self.socket.settimeout(max(0.001, ends - time.monotonic()))
                part = self.socket.recv(BUFFER_BYTES - len(data))
                if not part:
                    return data, 'ClosedByServer'
                data += part
                if b'\r\n\r\n' in data:
                    break
            time.sleep(0.1)
            while len(data) < BUFFER_BYTES and self.is_readable():
                part = self.socket.recv(BUFFER_BYTES - len(data))
                if not part:
                    break
                data += part
            return data, 'Open'
        except TimeoutError:
            return data, 'TimedOut'
        except OSError:
            return data, 'ClosedByServer'

    def state(self):
        try:
            if self.is_readable():
                return 'Open' if self.socket.recv(1, socket.MSG_PEEK) else 'ClosedByServer'
            return 'Open'
        except OSError:
            return 'ClosedByServer'

    def answer(self):
        data, state = self.read()
        if state == 'Open':
            time.sleep(0.05)
            state = self.state()
        return parse(data), state

    def close(self):
        self.socket.close()


def parse(data):
    text = data.decode('ascii', 'replace')
    line, end, rest = text.partition('\n')
    version, space, status = line.rstrip('\r').partition(' ')
    code, _, reason = status.partition(' ')
    if not end or not space or not code.isdigit():
        return None
    fields = Folded()
    for field in rest.split('\n'):
        field = field.rstrip('\r')
        if not field:
            break
        name, colon, value = field.partition(':')
        if colon and name:
            fields.add(name.strip(), value.strip())
    _, ended, body = text.partition('\r\n\r\n')
    return Record('HttpResponse', {
        'StatusCode': int(code), 'ReasonPhrase': reason, 'HttpVersion': version, 'Headers': fields,
        'Body': body[:4096] if ended and body else None, 'RawResponse': text[:8192]})


def judge(expected, response, state):
    if expected.get('CustomValidator'):
        return expected.CustomValidator(response, state)
    if expected.get('ExpectedConnectionState') == state:
        return 'Pass'
    closes = expected.get('AllowConnectionClose', False)
    if response is None:
        return 'Pass' if closes else 'Fail'
    status = expected.get('ExpectedStatus')
    return 'Pass' if status and status[0] <= response.StatusCode <= status[1] else 'Fail'


def run_single(case, context):
    client = Client(context.Host, context.Port)
    try:
        client.socket.sendall(bytes(case.PayloadFactory(context)))
        response, state = client.answer()
        return judge(case.Expected, response, state), [(response, state)]
    finally:
        client.close()


def parts_of(step, context, results):
    if step.get('SendPartsFactory'):
        return step.SendPartsFactory(context)
    if step.get('DynamicPayloadFactory'):
        payload = step.DynamicPayloadFactory(context, results)
    else:
        payload = step.PayloadFactory(context)
    return [Record('SequenceSendPart', {'PayloadFactory': lambda _: payload})]


def run_sequence(case, context):
    client, results, state = Client(context.Host, context.Port), [], 'Open'
    try:
        for step in case.Steps:
            result = {'Label': step.get('Label'), 'Executed': False, 'ConnectionState': state, 'Response': None}
            if state == 'Open':
                for part in parts_of(step, context, results):
                    try:
                        client.socket.sendall(bytes(part.PayloadFactory(context)))
                    except OSError:
                        break
                    if part.get('DelayAfter'):
                        time.sleep(part.DelayAfter)
                        if client.state() != 'Open':
                            break
                response, state = client.answer()
                result |= {'Executed': True, 'Response': response, 'ConnectionState': state}
            results.append(Record('StepResult', result))
        seen = [(result.Response, result.ConnectionState) for result in results]
        return case.Validator(results), seen
    finally:
        client.close()


def main():
    checkout, host, port, out, *wanted = sys.argv[1:]
    sys.setrecursionlimit(20_000)
    context = Record('TestContext', {'Host': host, 'Port': int(port), 'HostHeader': f"{host}:{port}"})
    counts, scored = {}, {}
    with open(out, 'w') as log:
        for suite, method in SUITES:
            path = os.path.join(checkout, 'src/Http11Probe/TestCases/Suites', suite + '.cs')
            with open(path, encoding='utf-8-sig') as file:
                cases = csharp.load(file.read())[method]()
            for case in cases:
                if wanted and case.Id not in wanted:
                    continue
                run = run_sequence if case.kind == 'SequenceTestCase' else run_single
                try:
                    verdict, seen = run(case, context)
                except OSError as error:
                    verdict, seen = 'Error', [(None, str(error))]
                level = case.get('RfcLevel') or 'Must'
                is_scored = case.get('Scored') is not False
                counts[verdict] = counts.get(verdict, 0) + 1
                if is_scored:
                    scored[verdict] = scored.get(verdict, 0) + 1
                got = ', '.join(f"{response.StatusCode if response else '-'} {state}" for response, state in seen)
                print(verdict, case.Id, level, 'scored' if is_scored else 'unscored', f"got {got};",
                      'expected', case.Expected.get('Description') or case.Expected.get('ExpectedStatus'),
                      '|', case.Description, file=log, flush=True)
    total = sum(scored.values())
    print('all cases:', ', '.join(f"{count} {verdict.lower()}" for verdict, count in sorted(counts.items())))
    print('scored:', ', '.join(f"{count} {verdict.lower()}" for verdict, count in sorted(scored.items())))
    # "Warning" is the probe's verdict on behaviour that the RFC allows but that is not the strictest.
    print(f"http11probe: passed {scored.get('Pass', 0) + scored.get('Warn', 0)} of {total}")


if __name__ == '__main__':
    main()
