"""Reads and evaluates the part of C# in which Http11Probe's cases are written.

`load(text)` gives the static members of the classes in a source file. Lambdas become Python functions,
object initialisers become `Record`s. What the cases don't use is not there: an unknown construct is an
error that names the place.
"""
import datetime
import random
import re

TOKEN = re.compile(r'''
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<string>"(?:[^"\\]|\\.)*"(?:u8)?)
  | (?P<char>'(?:[^'\\]|\\.)+')
  | (?P<number>0[xX][0-9A-Fa-f_]+|[0-9][0-9_]*)
  | (?P<name>@?[A-Za-z_][A-Za-z0-9_]*)
  | (?P<mark>=>|\?\?=|\?\?|\?\.|\.\.|==|!=|<=|>=|&&|\|\||\+\+|--|\+=|-=|[-+*/%<>=!?:;,.(){}\[\]&|^~])
''', re.X | re.S)
ESCAPE = re.compile(r'\\(?:x([0-9A-Fa-f]{1,4})|u([0-9A-Fa-f]{4})|(.))', re.S)
PLAIN = {'n': '\n', 'r': '\r', 't': '\t', '0': '\0', 'a': '\a', 'b': '\b', 'f': '\f', 'v': '\v'}
MODIFIERS = {'private', 'public', 'internal', 'static', 'readonly', 'const', 'sealed', 'async'}
LEVELS = [['??'], ['||'], ['&&'], ['|'], ['^'], ['&'], ['==', '!='], ['<', '>', '<=', '>='], ['+', '-'], ['*', '/', '%']]


def interpolated_end(text, at):
    """Returns the end of the interpolated string that begins at `at`; its braces may contain strings."""
    at, depth = at + 2, 0
    while depth or text[at] != '"':
        if text[at] == '\\' and not depth:
            at += 1
        elif text[at:at + 2] in ('{{', '}}') and not depth:
            at += 1
        elif text[at] == '"':
            at = text.index('"', at + 1)
        else:
            depth += (text[at] == '{') - (text[at] == '}')
        at += 1
    return at + 1


def unescape(text):
    def one(match):
        number = match[1] or match[2]
        return chr(int(number, 16)) if number else PLAIN.get(match[3], match[3])
    return ESCAPE.sub(one, text)


class Record(dict):
    """An object: its members by name."""
    def __init__(self, kind, members):
        super().__init__(members)
        self.kind = kind

    def __getattr__(self, name):
        if name in self:
            return self[name]
        raise AttributeError(f"{self.kind} has no member {name}")


class Char(str):
    """A character, which a string of length 1 is not."""


class Out:
    """A variable that a call sets."""
    value = None


class Return(Exception):
    def __init__(self, value):
        self.value = value


class Break(Exception):
    pass


class Continue(Exception):
    pass


class Scope:
    def __init__(self, above, members=None):
        self.above, self.members = above, dict(members or {})

    def find(self, name):
        scope = self
        while scope is not None:
            if name in scope.members:
                return scope
            scope = scope.above
        return None

    def get(self, name):
        scope = self.find(name)
        if scope is None:
            raise NameError(f"unknown name {name}")
        return scope.members[name]


class Parser:
    """Compiles source text into a tree of Python closures; each closure takes a scope."""

    def __init__(self, text, at_line=1):
        self.tokens, at = [], 0
        while at < len(text):
            if text.startswith('$"', at):
                end = interpolated_end(text, at)
                self.tokens.append(('string', text[at:end], at))
                at = end
                continue
            match = TOKEN.match(text, at)
            if not match:
                raise SyntaxError(f"line {at_line + text.count(chr(10), 0, at)}: {text[at:at + 40]!r}")
            if match.lastgroup != 'space':
                self.tokens.append((match.lastgroup, match[0], at))
            at = match.end()
        self.tokens.append(('end', '', at))
        self.text, self.at, self.at_line = text, 0, at_line

    # Tokens.
    def peek(self, ahead=0):
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)][1]

    def kind(self, ahead=0):
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)][0]

    def take(self, wanted=None):
        token = self.tokens[self.at]
        if wanted is not None and token[1] != wanted:
            line = self.at_line + self.text.count('\n', 0, token[2])
            raise SyntaxError(f"line {line}: {token[1]!r} instead of {wanted!r}")
        self.at += 1
        return token[1]

    def took(self, wanted):
        if self.peek() == wanted and self.kind() in ('mark', 'name'):
            self.at += 1
            return True
        return False

    def tried(self, parse):
        """Returns the result of `parse`; None, with no token consumed, if `parse` fails."""
        before = self.at
        try:
            return parse()
        except SyntaxError:
            self.at = before
            return None

    # The parser reads types and drops them.
    def type(self):
        if self.took('('):
            while True:
                self.type()
                if self.kind() == 'name':
                    self.take()
                if not self.took(','):
                    break
            self.take(')')
        else:
            if self.kind() != 'name':
                raise SyntaxError('no type')
            name = self.take()
            while self.took('.'):
                name = self.take()
            if self.took('<'):
                self.type()
                while self.took(','):
                    self.type()
                self.take('>')
        while True:
            if self.peek() == '[' and self.peek(1) == ']':
                self.at += 2
            elif self.peek() == '?' :
                self.take()
            else:
                return

    def declared(self):
        """Parses `type name` if a name and the end of a declaration follow."""
        self.type()
        if self.kind() != 'name':
            raise SyntaxError('no declaration')
        name = self.take()
        if self.peek() not in ('=', ';', 'in', ',', ')'):
            raise SyntaxError('no declaration')
        return name

    # Classes.
    def unit(self):
        members = Scope(BUILTINS)
        while self.kind() != 'end':
            if self.took('using') or self.took('namespace'):
                while not self.took(';'):
                    self.take()
                continue
            while self.peek() in MODIFIERS:
                self.take()
            self.take('class')
            self.take()
            self.take('{')
            while not self.took('}'):
                self.member(members)
        return members

    def member(self, members):
        while self.peek() in MODIFIERS:
            self.take()
        self.type()
        name = self.take()
        if self.took('('):
            parameters, rest = self.parameters()
            body = self.body()
            members.members[name] = function(members, parameters, body, rest)
        elif self.took('=>'):
            value = self.expression()
            self.take(';')
            members.members[name] = value(members)
        else:
            self.take('=')
            value = self.expression()
            self.take(';')
            members.members[name] = value(members)

    def parameters(self):
        names, rest = [], False
        while not self.took(')'):
            rest = self.took('params') or rest
            self.took('out')
            self.type()
            names.append(self.take())
            self.took(',')
        return names, rest

    def body(self):
        if self.took('=>'):
            value = self.expression()
            self.take(';')
            return value, False
        return self.block(), True

    # Statements.
    def block(self):
        self.take('{')
        statements = []
        while not self.took('}'):
            statements.append(self.statement())

        def run(scope):
            inner = Scope(scope)
            for statement in statements:
                statement(inner)
        return run

    def statement(self):
        if self.peek() == '{':
            return self.block()
        for word in ('yield', 'return', 'if', 'while', 'foreach', 'for', 'break', 'continue'):
            if self.peek() == word and self.kind() == 'name':
                self.take()
                return getattr(self, 'read_' + word)()
        self.took('const')
        statement = self.simple()
        self.take(';')
        return statement

    def simple(self):
        names = self.tried(self.deconstruction)
        if names:
            value = self.expression()
            return lambda scope: scope.members.update(zip(names, value(scope)))
        name = self.tried(self.declared)
        if name is None:
            return self.assignment()
        value = self.expression() if self.took('=') else lambda scope: None

        def declare(scope):
            scope.members[name] = value(scope)
        return declare

    def deconstruction(self):
        self.take('var')
        self.take('(')
        names = [self.take()]
        while self.took(','):
            names.append(self.take())
        self.take(')')
        if self.peek() in ('=', 'in'):
            if self.peek() == '=':
                self.take()
            return names
        raise SyntaxError('no deconstruction')

    def assignment(self):
        begin = self.at
        left = self.expression()
        sign = self.peek()
        if sign in ('=', '+=', '-=', '++', '--', '??='):
            end = self.at
            self.take()
            right = (lambda scope: 1) if sign in ('++', '--') else self.expression()
            after = self.at
            self.at = begin
            place = self.place(end)
            self.at = after

            def assign(scope):
                value = right(scope)
                if sign in ('+=', '++'):
                    value = add(left(scope), value)
                elif sign in ('-=', '--'):
                    value = left(scope) - value
                place(scope, value)
            return assign
        return left

    def place(self, end):
        """Parses the target of an assignment, up to the token `end`."""
        if self.at + 1 == end:
            name = self.take()

            def set_name(scope, value):
                scope.find(name).members[name] = value
            return set_name
        if self.tokens[end - 1][1] != ']':
            raise SyntaxError(f"can't assign to {self.text[self.tokens[self.at][2]:self.tokens[end][2]]!r}")
        target = self.primary()
        self.take('[')
        index = self.expression()

        def set_item(scope, value):
            target(scope)[index(scope)] = ord(value) if isinstance(value, Char) else value
        return set_item

    def read_yield(self):
        self.take('return')
        value = self.expression()
        self.take(';')
        return lambda scope: scope.get(' yielded').append(value(scope))

    def read_return(self):
        value = (lambda scope: None) if self.peek() == ';' else self.expression()
        self.take(';')

        def give(scope):
            raise Return(value(scope))
        return give

    def read_if(self):
        self.take('(')
        condition = self.expression()
        self.take(')')
        then = self.statement()
        otherwise = self.statement() if self.took('else') else lambda scope: None
        return lambda scope: then(scope) if condition(scope) else otherwise(scope)

    def read_while(self):
        self.take('(')
        condition = self.expression()
        self.take(')')
        return loop(lambda scope: None, condition, lambda scope: None, self.statement())

    def read_for(self):
        self.take('(')
        begin = self.simple()
        self.take(';')
        condition = self.expression()
        self.take(';')
        step = self.assignment()
        self.take(')')
        return loop(begin, condition, step, self.statement())

    def read_foreach(self):
        self.take('(')
        names = self.tried(self.deconstruction)
        if not names:
            names = self.declared()
        self.take('in')
        values = self.expression()
        self.take(')')
        body = self.statement()

        def run(scope):
            for value in iterated(values(scope)):
                inner = Scope(scope)
                if isinstance(names, list):
                    inner.members.update(zip(names, (value['Key'], value['Value'])))
                else:
                    inner.members[names] = value
                try:
                    body(inner)
                except Break:
                    return
                except Continue:
                    pass
        return run

    def read_break(self):
        self.take(';')

        def leave(scope):
            raise Break
        return leave

    def read_continue(self):
        self.take(';')

        def go_on(scope):
            raise Continue
        return go_on

    # Expressions.
    def expression(self):
        function = self.tried(self.lambda_head)
        if function is not None:
            names = function
            body = (self.block(), True) if self.peek() == '{' else (self.expression(), False)
            return lambda scope: make(scope, names, body)
        value = self.level(0)
        if self.took('?'):
            then = self.expression()
            self.take(':')
            otherwise = self.expression()
            return lambda scope: then(scope) if value(scope) else otherwise(scope)
        return value

    def lambda_head(self):
        self.took('async')
        if self.took('('):
            names = []
            while not self.took(')'):
                if self.kind() != 'name':
                    raise SyntaxError('no lambda')
                names.append(self.take())
                if self.peek() not in (',', ')'):
                    raise SyntaxError('no lambda')
                self.took(',')
        elif self.kind() == 'name':
            names = [self.take()]
        else:
            raise SyntaxError('no lambda')
        self.take('=>')
        return names

    def level(self, nth):
        if nth == len(LEVELS):
            return self.unary()
        left = self.level(nth + 1)
        while True:
            if nth == 7 and self.peek() == 'is' and self.kind() == 'name':
                self.take()
                left = matching(left, self.pattern())
                continue
            sign = self.peek()
            if self.kind() != 'mark' or sign not in LEVELS[nth]:
                return left
            self.take()
            # The right operand of ?? may be any expression.
            right = self.expression() if sign == '??' else self.level(nth + 1)
            left = OPERATORS[sign](left, right)

    def pattern(self):
        left = self.and_pattern()
        while self.took('or'):
            left = either(left, self.and_pattern())
        return left

    def and_pattern(self):
        left = self.one_pattern()
        while self.took('and'):
            left = both(left, self.one_pattern())
        return left

    def one_pattern(self):
        if self.took('not'):
            inner = self.one_pattern()
            return lambda value, scope: not inner(value, scope)
        if self.took('('):
            inner = self.pattern()
            self.take(')')
            return inner
        if self.took('{'):
            if self.took('}'):
                return lambda value, scope: value is not None
            name = self.take()
            self.take(':')
            inner = self.pattern()
            self.take('}')
            return lambda value, scope: value is not None and inner(member(value, name), scope)
        if self.peek() in ('<', '>', '<=', '>='):
            sign = self.take()
            bound = self.level(8)
            compare = COMPARED[sign]
            return lambda value, scope: value is not None and compare(value, bound(scope))
        constant = self.level(8)
        return lambda value, scope: value == constant(scope)

    def unary(self):
        if self.took('!'):
            inner = self.unary()
            return lambda scope: not inner(scope)
        # The operator `^` counts from the end of a list or string.
        if self.took('-') or self.took('^'):
            inner = self.unary()
            return lambda scope: -inner(scope)
        if self.peek() == '(' and self.tokens[self.at + 1][1] in ('byte', 'char', 'int') and self.peek(2) == ')':
            kind = self.peek(1)
            self.at += 3
            inner = self.unary()
            cast = {'char': lambda it: Char(chr(it)) if isinstance(it, int) else it}
            number = lambda it: ord(it) if isinstance(it, Char) else it
            convert = cast.get(kind, number)
            return lambda scope: convert(inner(scope))
        return self.primary(full=True)

    def primary(self, full=False):
        value = self.atom()
        while True:
            if self.peek() == '?.':
                self.take()
                name = self.take()
                rest = self.chain(lambda it, scope: member(it, name))
                value = guarded(value, rest)
                continue
            before = self.at
            step = self.step()
            if step is None:
                return value
            if not full and self.peek() in ('=', '+=', '++') and self.tokens[self.at - 1][1] == ']':
                self.at = before
                return value
            value = applied(value, step)

    def chain(self, first):
        steps = [first]
        while True:
            step = self.step()
            if step is None:
                break
            steps.append(step)

        def run(value, scope):
            for step in steps:
                value = step(value, scope)
            return value
        return run

    def step(self):
        """Parses one `.name`, `(arguments)`, `[index]` or `!`; returns a function of value and scope."""
        if self.peek() == '!' and self.peek(1) in ('.', ')', ';', ',', '['):
            self.take()
            return lambda value, scope: value
        if self.took('.'):
            name = self.take()
            # Type arguments of a method.
            return lambda value, scope: member(value, name)
        if self.took('('):
            arguments = self.arguments()
            return lambda value, scope: call(value, arguments, scope)
        if self.took('['):
            if self.took('..'):
                end = None if self.peek() == ']' else self.expression()
                self.take(']')
                return lambda value, scope: value[:end(scope) if end else None]
            index = self.expression()
            if self.took('..'):
                end = None if self.peek() == ']' else self.expression()
                self.take(']')
                return lambda value, scope: value[index(scope):end(scope) if end else None]
            self.take(']')
            return lambda value, scope: item(value, index(scope))
        return None

    def arguments(self):
        arguments = []
        while not self.took(')'):
            if self.took('out'):
                if self.took('_'):
                    name = '_'
                else:
                    self.tried(self.out_type)
                    name = self.take()
                arguments.append(out_argument(name))
            else:
                # A named argument.
                if self.kind() == 'name' and self.peek(1) == ':' and self.peek(2) != ':':
                    self.at += 2
                arguments.append(self.expression())
            self.took(',')
        return arguments

    def out_type(self):
        self.type()
        if self.kind() != 'name':
            raise SyntaxError('no type')

    def atom(self):
        kind, text, _ = self.tokens[self.at]
        if kind == 'string':
            self.take()
            return string(text, self)
        if kind == 'char':
            self.take()
            value = Char(unescape(text[1:-1]))
            return lambda scope: value
        if kind == 'number':
            self.take()
            number = int(text.replace('_', ''), 0) if text[:2] in ('0x', '0X') else int(text.replace('_', ''))
            return lambda scope: number
        if self.took('('):
            first = self.expression()
            if self.peek() == ',':
                parts = [first]
                while self.took(','):
                    parts.append(self.expression())
                self.take(')')
                return lambda scope: tuple(part(scope) for part in parts)
            self.take(')')
            return first
        if self.took('['):
            return self.collection(']')
        if kind != 'name':
            self.take('an expression')
        name = self.take()
        if name == 'new':
            return self.new()
        if name in ('null', 'true', 'false', 'default'):
            value = {'true': True, 'false': False}.get(name)
            return lambda scope: value
        return lambda scope: scope.get(name)

    def collection(self, end):
        parts = []
        while not self.took(end):
            spread = self.took('..')
            parts.append((spread, self.expression()))
            self.took(',')

        def make_list(scope):
            made = []
            for spread, part in parts:
                made.extend(iterated(part(scope))) if spread else made.append(part(scope))
            return made
        return make_list

    def new(self):
        if self.peek() == '[':
            self.take()
            self.take(']')
            self.take('{')
            return self.collection('}')
        name = self.take()
        while self.took('.'):
            name = self.take()
        if self.took('<'):
            self.type()
            while self.took(','):
                self.type()
            self.take('>')
        if self.took('['):
            if self.took(']'):
                self.take('{')
                return self.collection('}')
            length = self.expression()
            self.take(']')
            if self.took('{'):
                return self.collection('}')
            return lambda scope: bytearray(length(scope))
        arguments = self.arguments() if self.took('(') else []
        members = []
        if self.took('{'):
            while not self.took('}'):
                key = self.take()
                self.take('=')
                members.append((key, self.expression()))
                self.took(',')

        def create(scope):
            if name in MADE:
                return MADE[name](*[argument(scope) for argument in arguments])
            return Record(name, [(key, value(scope)) for key, value in members])
        return create


def string(text, parser):
    if text.endswith('u8'):
        value = unescape(text[1:-3]).encode('utf-8')
        return lambda scope: value
    if not text.startswith('$'):
        value = unescape(text[1:-1])
        return lambda scope: value
    parts, rest = [], text[2:-1]
    while rest:
        begin = re.search(r'\{\{|\}\}|\{', rest)
        if not begin:
            parts.append(unescape(rest))
            break
        parts.append(unescape(rest[:begin.start()]))
        rest = rest[begin.end():]
        if begin[0] != '{':
            parts.append(begin[0][0])
            continue
        depth, end = 1, 0
        while depth:
            depth += (rest[end] == '{') - (rest[end] == '}')
            end += 1
        end -= 1
        form = re.search(r':([A-Za-z]\w*)$', rest[:end])
        inner = rest[:form.start()] if form else rest[:end]
        parts.append((Parser(inner).expression(), form[1] if form else ''))
        rest = rest[end + 1:]

    def join(scope):
        return ''.join(part if isinstance(part, str) else shown(part[0](scope), part[1]) for part in parts)
    return join


def shown(value, form=''):
    if form:
        return f"{value:{form.lower()}}" if form[0] in 'xX' else f"{value:,}"
    return 'True' if value is True else 'False' if value is False else '' if value is None else str(value)


def make(scope, names, body):
    return function(scope, names, body, False)


def function(above, names, body, rest):
    run, is_block = body

    def called(*arguments):
        arguments = list(arguments)
        if rest:
            fixed = len(names) - 1
            arguments = arguments[:fixed] + [arguments[fixed:]]
        yielded = []
        scope = Scope(above, zip(names, arguments))
        if not is_block:
            return run(scope)
        scope.members[' yielded'] = yielded
        try:
            run(scope)
        except Return as returned:
            return returned.value
        return yielded
    return called


def loop(begin, condition, step, body):
    def run(scope):
        scope = Scope(scope)
        begin(scope)
        while condition(scope):
            try:
                body(scope)
            except Break:
                return
            except Continue:
                pass
            step(scope)
    return run


def out_argument(name):
    def bind(scope):
        out = Out()
        out.name, out.scope = name, scope
        return out
    return bind


def call(function, arguments, scope):
    values = [argument(scope) for argument in arguments]
    outs = [value for value in values if isinstance(value, Out)]
    result = function(*values)
    for out in outs:
        (out.scope.find(out.name) or out.scope).members[out.name] = out.value
    return result


def iterated(values):
    if isinstance(values, dict) and not isinstance(values, Record):
        return [Record('KeyValuePair', {'Key': key, 'Value': value}) for key, value in values.items()]
    if isinstance(values, str):
        return [Char(one) for one in values]
    return values


def item(value, index):
    found = value[index]
    return Char(found) if isinstance(value, str) else found


def add(left, right):
    if isinstance(left, str) or isinstance(right, str):
        return shown(left) + shown(right)
    return left + right


def applied(value, step):
    return lambda scope: step(value(scope), scope)


def guarded(value, rest):
    def run(scope):
        it = value(scope)
        return None if it is None else rest(it, scope)
    return run


def matching(value, pattern):
    return lambda scope: bool(pattern(value(scope), scope))


def either(left, right):
    return lambda value, scope: left(value, scope) or right(value, scope)


def both(left, right):
    return lambda value, scope: left(value, scope) and right(value, scope)


def compared(compare):
    def operator(left, right):
        def run(scope):
            a, b = left(scope), right(scope)
            return a is not None and b is not None and compare(a, b)
        return run
    return operator


COMPARED = {'<': lambda a, b: a < b, '>': lambda a, b: a > b, '<=': lambda a, b: a <= b, '>=': lambda a, b: a >= b}


def plain(work):
    return lambda left, right: lambda scope: work(left(scope), right(scope))


def or_else(left, right):
    def run(scope):
        value = left(scope)
        return right(scope) if value is None else value
    return run


OPERATORS = {sign: compared(compare) for sign, compare in COMPARED.items()} | {
    '??': or_else,
    '||': lambda left, right: lambda scope: left(scope) or right(scope),
    '&&': lambda left, right: lambda scope: left(scope) and right(scope),
    '==': plain(lambda a, b: a == b), '!=': plain(lambda a, b: a != b), '+': plain(add),
    '-': plain(lambda a, b: a - b), '*': plain(lambda a, b: a * b), '/': plain(lambda a, b: a // b),
    '%': plain(lambda a, b: a % b), '|': plain(lambda a, b: a | b), '&': plain(lambda a, b: a & b),
    '^': plain(lambda a, b: a ^ b),
}


class Builder:
    def __init__(self, *_):
        self.text = ''

    def Append(self, more, count=1):
        self.text += shown(more) * count
        return self

    def ToString(self):
        return self.text

    __str__ = ToString


class Random:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def NextBytes(self, into):
        into[:] = self.random.randbytes(len(into))


MADE = {
    'string': lambda one, count: one * count, 'StringBuilder': Builder, 'Random': Random,
    'List': lambda *_: [], 'Dictionary': lambda *_: {},
}


def is_folded(comparison):
    return comparison is not None and comparison.endswith('IgnoreCase')


def try_parse_exact(text, form, *rest):
    out = rest[-1]
    try:
        names = {'R': '%a, %d %b %Y %H:%M:%S GMT', 'r': '%a, %d %b %Y %H:%M:%S GMT'}
        form = names.get(form) or form.replace("'GMT'", 'GMT').replace('dddd', '%A').replace('ddd', '%a') \
            .replace('dd', '%d').replace('MMM', '%b').replace('yyyy', '%Y').replace('yy', '%y') \
            .replace('HH', '%H').replace('mm', '%M').replace('ss', '%S')
        out.value = datetime.datetime.strptime(text, form)
        return True
    except ValueError:
        return False


def try_parse_number(text, *rest):
    try:
        rest[-1].value = int(text, 16 if len(rest) > 1 else 10)
        return True
    except ValueError:
        rest[-1].value = 0
        return False


def strings(value, name):
    """Returns a member of a string."""
    def stripped(strip):
        return lambda *ends: getattr(value, strip)(''.join(ends) if ends else None)

    def contains(what, comparison=None):
        return what.lower() in value.lower() if is_folded(comparison) else what in value

    def equals(other, comparison=None):
        return other is not None and (value.lower() == other.lower() if is_folded(comparison) else value == other)

    def starts(what, comparison=None):
        return value.lower().startswith(what.lower()) if is_folded(comparison) else value.startswith(what)

    def index(what, *rest):
        begin = rest[0] if rest and isinstance(rest[0], int) else 0
        return value.lower().find(what.lower(), begin) if rest and is_folded(rest[-1] if isinstance(rest[-1], str) else None) else value.find(what, begin)

    def split(at, *options):
        return [part for part in value.split(at) if part or not options]
    return {
        'Length': len(value), 'Contains': contains, 'Equals': equals, 'StartsWith': starts, 'IndexOf': index,
        'EndsWith': lambda what, *_: value.endswith(what), 'Trim': stripped('strip'),
        'TrimStart': stripped('lstrip'), 'TrimEnd': stripped('rstrip'), 'Split': split,
        'ToString': lambda *_: value, 'ToLowerInvariant': value.lower, 'ToUpperInvariant': value.upper,
        'Any': lambda test: any(test(one) for one in iterated(value)),
        'All': lambda test: all(test(one) for one in iterated(value)),
        'Replace': value.replace,
    }[name]


def lists(value, name):
    """Returns a member of a list or of bytes."""
    def copy_to(into, at):
        into[at:at + len(value)] = value

    def count(test=None):
        return len(value) if test is None else sum(1 for one in value if test(one))
    return {
        'Length': lambda: len(value), 'Count': count, 'CopyTo': copy_to, 'Add': lambda one: value.append(one),
        'Any': lambda test=lambda _: True: any(test(one) for one in value),
        'All': lambda test: all(test(one) for one in value),
        'Select': lambda each: [each(one) for one in value],
        'Contains': lambda one: one in value, 'ToArray': lambda: value, 'ToList': lambda: value,
    }[name]


class Count(int):
    """A count of members; C# has the count both as a property and as a method."""
    def __new__(cls, value, counting):
        self = super().__new__(cls, value)
        self.counting = counting
        return self

    def __call__(self, *arguments):
        return self.counting(*arguments)


def member(value, name):
    if value is None:
        raise TypeError(f"null has no member {name}")
    if isinstance(value, Record):
        # A member that the initialiser omits is null.
        return value.get(name)
    if isinstance(value, str):
        return strings(value, name)
    if isinstance(value, dict):
        def try_get(key, out):
            out.value = value.get(key)
            return key in value
        return {'ContainsKey': lambda key: key in value, 'TryGetValue': try_get, 'Keys': list(value),
                'Values': list(value.values()), 'Count': len(value)}[name]
    if isinstance(value, (list, tuple, bytes, bytearray)):
        if name == 'Length':
            return len(value)
        return Count(len(value), lists(value, name)) if name == 'Count' else lists(value, name)
    if isinstance(value, int) and name == 'ToString':
        return lambda form='': shown(value, form)
    return getattr(value, name)


class Names:
    """An enumeration: each member is its own name."""
    def __getattr__(self, name):
        return name


class Static:
    def __init__(self, **members):
        self.__dict__.update(members)


def ascii_bytes(text):
    return bytes(ord(one) if ord(one) < 128 else 63 for one in text)


ASCII = Static(GetBytes=ascii_bytes, GetByteCount=len, GetString=lambda them, *_: bytes(them).decode('ascii', 'replace'))
UTF8 = Static(GetBytes=lambda text: text.encode(), GetByteCount=lambda text: len(text.encode()))
LATIN1 = Static(GetBytes=lambda text: text.encode('latin-1', 'replace'), GetByteCount=len)
STRING = Static(
    Equals=lambda a, b, comparison=None: a is not None and b is not None and strings(a, 'Equals')(b, comparison),
    IsNullOrEmpty=lambda text: not text, IsNullOrWhiteSpace=lambda text: not text or not text.strip(),
    Join=lambda between, them: between.join(shown(one) for one in them), Empty='')
STATUS = Static(
    Exact=lambda code: (code, code), Range=lambda low, high: (low, high),
    Range2xx=(200, 299), Range4xx=(400, 499), Range4xxOr5xx=(400, 599))
TIME = Static(FromMilliseconds=lambda count: count / 1000, FromSeconds=lambda count: count, Zero=0)
DATES = Static(TryParseExact=try_parse_exact)
NUMBERS = Static(TryParse=try_parse_number)
SYSTEM = Static(Globalization=Static(
    DateTimeStyles=Names(), NumberStyles=Names(), CultureInfo=Names()), StringComparison=Names(), Text=Static(
    Encoding=Static(ASCII=ASCII, UTF8=UTF8, Latin1=LATIN1)))

BUILTINS = Scope(None, {
    'System': SYSTEM, 'Encoding': Static(ASCII=ASCII, UTF8=UTF8, Latin1=LATIN1), 'string': STRING, 'String': STRING,
    'StatusCodeRange': STATUS, 'TimeSpan': TIME, 'DateTime': DATES, 'DateTimeOffset': DATES, 'int': NUMBERS,
    'Enumerable': Static(Range=lambda begin, count: list(range(begin, begin + count))),
    'Math': Static(Min=min, Max=max),
    'char': Static(IsDigit=str.isdigit, IsWhiteSpace=str.isspace, IsLetter=str.isalpha),
    **{name: Names() for name in (
        'TestVerdict', 'TestCategory', 'RfcLevel', 'ConnectionState', 'StringComparison', 'StringSplitOptions',
        'StringComparer', 'DateTimeStyles', 'NumberStyles', 'CultureInfo')},
})


def load(text):
    """Returns the static members of the classes in `text`, by name."""
    return Parser(text).unit().members
