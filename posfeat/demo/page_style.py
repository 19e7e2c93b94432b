"""How the demo's page looks, by day and by night."""

STYLE = """
:root { color-scheme: light dark; --ground: #f6f5f2; --card: #fff; --ink: #1c1d20; --soft: #66686e; --line: #e3e1dc;
  --right: #1b9e5a; --wrong: #d6453d; --accent: #2b6cb0; --onaccent: #fff; }
@media (prefers-color-scheme: dark) { :root { --ground: #15161a; --card: #1f2126; --ink: #ececef; --soft: #a0a3ab;
  --line: #33363d; --right: #38c97f; --wrong: #f0665e; --accent: #6ea8e8; --onaccent: #10131a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2.2rem 1.2rem 4rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .3rem; letter-spacing: -.02em; }
h2 { font-size: 1.25rem; margin: 0 0 .4rem; letter-spacing: -.01em; }
p { margin: 0 0 .8rem; max-width: 46rem; }
.soft, figcaption { color: var(--soft); }
.warning { border-left: 4px solid var(--wrong); padding: .6rem .9rem; background: var(--card); border-radius: 0 8px 8px 0; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 1.4rem; margin-top: 1.4rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(11.5rem, 1fr)); gap: .8rem; margin-top: 1.4rem; }
.facts div { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: .8rem 1rem; }
.facts b { display: block; font-size: 1.7rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.facts span { color: var(--soft); font-size: .88rem; }
figure { margin: 1rem 0 0; }
figure img { width: 100%; height: auto; border-radius: 8px; display: block; }
figcaption { font-size: .9rem; margin-top: .45rem; }
.right { color: var(--right); font-weight: 600; } .wrong { color: var(--wrong); font-weight: 600; }
.sheet { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .5rem; margin-top: 1rem; }
.sheet div { position: relative; } .sheet img { width: 100%; display: block; border-radius: 6px; }
.sheet span { position: absolute; left: .4rem; bottom: .4rem; background: rgba(0, 0, 0, .62); color: #fff; border-radius: 5px;
  font-size: .75rem; padding: 0 .4rem; }
iframe.scene { width: 100%; height: 52rem; border: 1px solid var(--line); border-radius: 8px; margin: 1rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin-top: .8rem; }
th, td { padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th { font-weight: 600; } th:first-child, td:first-child { text-align: left; }
table.origin td { text-align: left; overflow-wrap: anywhere; } table.origin { width: 100%; }
table.origin td:first-child { color: var(--soft); white-space: nowrap; }
pre { background: var(--ground); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem; overflow-x: auto;
  font-size: .88rem; }
svg { display: block; width: 100%; height: auto; margin-top: 1rem; } svg.grid { max-width: 40rem; }
svg text { fill: var(--soft); font: 13px system-ui, sans-serif; text-anchor: middle; }
.wall { stroke: var(--soft); stroke-width: 7; } .picture { stroke: var(--ink); stroke-width: 4; stroke-linecap: round; }
.sight { fill: var(--accent); fill-opacity: .16; } .camera { fill: var(--accent); }
.found { fill: none; stroke: var(--right); stroke-width: 2.5; }
.grid rect { fill: var(--accent); } svg.grid text { font-size: 11px; } svg.grid .on { fill: var(--onaccent); }
svg.grid .number { fill: var(--ink); font-weight: 600; }
"""
