"""A worker that does what its request says; stands where the measuring worker stands."""

import json
import os
import signal
import subprocess
import sys
import time


def main(request):
    asked = json.loads(request)
    match asked["do"]:
        case "answer":
            return json.dumps({"outcome": "ok", "got": asked})
        case "die":
            os.kill(os.getpid(), asked.get("signal", signal.SIGKILL))
        case "hang":
            time.sleep(3600)
        case "shout":
            print("rubbish\x1b[31m\n" * 1000)
            print("last words", file=sys.stderr)
            return json.dumps({"outcome": "ok"})
        case "leave":
            print("I leave", flush=True)
            sys.exit(3)
        case "raise":
            raise RuntimeError("no good")
        case "start":
            start(asked["how"], asked["count"], asked["told"])
            return main(json.dumps({"do": asked["then"]}))
        case "pid":
            return json.dumps({"pid": os.getpid(), "ppid": os.getppid()})
    return None


def start(how, count, told):
    """Processes that try to outlive this one; writes their ids into a file."""
    for _ in range(count):
        if how == "session":
            found = subprocess.Popen(["sleep", "600"], start_new_session=True, env={}).pid
            write(told, found)
        elif os.fork() == 0:  # forked twice: its parent dies at once
            os.setsid()
            if os.fork() == 0:
                write(told, os.getpid())
                time.sleep(600)
            os._exit(0)
        else:
            os.wait()
    while os.path.getsize(told) < 8 * count:
        time.sleep(0.001)


def write(told, pid):
    with open(told, "a") as file:
        file.write(f"{pid:7}\n")
