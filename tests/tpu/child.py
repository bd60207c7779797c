"""A process that takes lines and answers each; one that dies or takes too long loses that line alone."""

import os
import select
import subprocess
import time
from dataclasses import dataclass

PATIENCE = 8


@dataclass
class Answer:
    line: str
    status: str  # ok, error, died, timeout
    ms: int
    message: str = ""


class Child:
    """`command` answers a line with "begin LINE", then "ok MS LINE" or "error LINE MESSAGE".

    `limit` is seconds of CPU, since a machine may be busy with other things; the clock may show PATIENCE times as many.
    """

    def __init__(self, command, environment, log, limit, lines_per_process=1 << 30):
        self.command, self.environment = [str(part) for part in command], {**os.environ, **environment}
        self.log, self.limit, self.lines_per_process = log, limit, lines_per_process
        self.process, self.text, self.done = None, b"", 0

    def start(self):
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=self.environment
            )
        self.text, self.done = b"", 0

    def stop(self):
        if self.process is not None:
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()
            self.process = None

    def _kill(self):
        self.process.kill()
        code = self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process = None
        with open(self.log, "rb") as log:
            tail = log.read()[-600:].decode(errors="replace")
        return code, " ".join(tail.split())[-400:]

    def _cpu(self):
        """Seconds of CPU that the process has used."""
        try:
            with open(f"/proc/{self.process.pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _line(self, cpu, deadline):
        """The next line of output; None at the end of it, "" when it is too late."""
        descriptor = self.process.stdout.fileno()
        while b"\n" not in self.text:
            if not select.select([descriptor], [], [], 1)[0]:
                if time.monotonic() > deadline or self._cpu() > cpu:
                    return ""
                continue
            more = os.read(descriptor, 1 << 16)
            if not more:
                return None
            self.text += more
        line, self.text = self.text.split(b"\n", 1)
        return line.decode(errors="replace")

    def ask(self, line):
        if self.process is not None and self.done >= self.lines_per_process:
            self.stop()
        fresh = self.process is None
        if fresh:
            self.start()
        limit = self.limit + (30 if fresh else 0)
        begin, cpu = time.monotonic(), self._cpu()
        try:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
        except OSError:
            pass  # it is dead: the end of its output says so
        while True:
            answer = self._line(cpu + limit, begin + PATIENCE * limit)
            ms = round(1e3 * (time.monotonic() - begin))
            if answer is None:
                code, tail = self._kill()
                return Answer(line, "died", ms, f"exit {code}: {tail}")
            if not answer:
                self._kill()
                return Answer(line, "timeout", ms, f"no answer in {ms / 1e3:.0f} s")
            word, _, rest = answer.partition(" ")
            if word == "ok":
                self.done += 1
                return Answer(line, "ok", int(rest.split(" ", 1)[0]))
            if word == "error":
                self.done += 1
                return Answer(line, "error", ms, rest[len(line) + 1 :].replace("\\n", "\n"))
