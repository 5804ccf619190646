"""How the report's page looks; light or dark as the reader's browser is set."""

STYLE = """
:root{color-scheme:light dark;--text:#1d2126;--pale:#646c76;--line:#d8dde3;--back:#fff;--raised:#f6f8fa;
--graph:#d3f0da;--replaced:#e6f4ff;--boundary:#ffd9d6;--native:#ffeccc;--unseen:#eceff2}
@media(prefers-color-scheme:dark){:root{--text:#e2e6ea;--pale:#98a1ab;--line:#3a424b;--back:#16191d;--raised:#1e2329;
--graph:#1d4a2b;--replaced:#17375a;--boundary:#6b2520;--native:#5c4413;--unseen:#2a3037}}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.5 system-ui,sans-serif}
main{max-width:1150px;margin:0 auto;padding:1.5rem}
h1,h2,h3{line-height:1.2}h2 small{font-weight:normal;color:var(--pale);font-size:.8rem}
code,pre,.source{font-family:ui-monospace,monospace;font-size:13px}
table{border-collapse:collapse;font-size:14px}
th,td{text-align:left;vertical-align:top;padding:.25rem .6rem;border-bottom:1px solid var(--line)}
th{color:var(--pale);font-weight:600}td ul{margin:0;padding-left:1.1rem}
section.compiled{border-top:2px solid var(--line);margin-top:2rem}
details{margin:.4rem 0}summary{cursor:pointer}
details.record{background:var(--raised);border:1px solid var(--line);border-radius:6px;padding:.4rem .8rem}
pre,.drawing,.wide{overflow-x:auto;max-width:100%}pre{max-height:32rem;overflow-y:auto}
.drawing{max-height:40rem;overflow-y:auto;background:#fff;border:1px solid var(--line)}
.bar{display:flex;height:1.4rem;border-radius:4px;overflow:hidden;background:var(--line)}
.part{display:block;min-width:1px}
.legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.4rem;font-size:14px}
.key{display:inline-block;width:.9rem;height:.9rem;border-radius:3px;vertical-align:-1px;border:1px solid var(--line)}
.part0{background:#4878a8}.part1{background:#8fb3d9}.part2{background:#b279a2}.part3{background:#59a14f}
.part4{background:#e0a03c}.part5{background:#a9b0b7}
.source td{border:0;padding:0 .6rem;white-space:pre}.source .number{color:var(--pale);text-align:right}
.source .gap td{color:var(--pale)}
.note{margin-left:1rem;padding:0 .4rem;border-radius:3px;border:1px solid currentColor;font-size:12px}
.graph{background:var(--graph)}.replaced{background:var(--replaced)}.boundary{background:var(--boundary)}
.native{background:var(--native)}.unseen{background:var(--unseen)}
"""
