"""Reads one long answer, and tells when each piece came: in a process of its own, so that nothing else delays it.

`python -m tests.e2e.stream_reader URL`: for each piece a line of monotonic seconds, which all processes of a machine
share, until it is stopped; or the piece itself, if it is an error.
"""

import http.client
import json
import sys
import time
import urllib.parse

MODEL = "smollm2-135m"
ANSWER = {"max_tokens": 1_900, "ignore_eos": True, "stream": True}


def main() -> None:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(sys.argv[1]).netloc)
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Tell a long story."}], **ANSWER}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    for line in connection.getresponse():
        if line.strip():
            print(time.monotonic() if b'"error"' not in line else line, flush=True)


if __name__ == "__main__":
    main()
