"""The page in a real browser, opened from disk."""

import shlex
import shutil
from dataclasses import dataclass

import numpy as np
import pytest
import tyro

from kmyriad.config import PretrainConfig
from kmyriad.report import write_report
from kmyriad.runs.run import create_run
from tests.made_up_run import SPEED, made_up_jumpstart, made_up_run, walks

sync_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here; install it to test the page")

DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 844}
HOSTILE = "<img src=x onerror=alert(1)>'\"$(touch owned)`|<script>alert(1)<|script>"
CONTRAST = """([front, back]) => {
  const parse = (name) => {
    const colour = cssColour(name);
    return [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16) / 255);
  };
  const light = (name) => {
    const [r, g, b] = parse(name).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [low, high] = [light(front), light(back)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}"""
"""WCAG's ratio of two of the page's colours."""


@dataclass
class JumpstartArguments:
    """As the command has them."""

    run: tyro.conf.Positional[str]
    goal: tuple[float, ...]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def show(browser, tmp_path):
    """`show(runs)` opens their page; at the end it must have been without errors, requests and dialogs."""
    contexts, trouble = [], []

    def show(runs, viewport=DESKTOP, scheme="light"):
        out = tmp_path / "page of runs.html"
        write_report(runs, out)
        context = browser.new_context(viewport=viewport, color_scheme=scheme, offline=True)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: trouble.append(dialog.message))
        page.on("request", lambda request: trouble.append(request.url) if request.url[:4] in ("http", "ws:/") else None)
        page.on("requestfailed", lambda request: trouble.append(request.url[:100]))
        page.goto(out.as_uri())
        page.wait_for_function("document.querySelector('footer')")
        return page

    yield show
    for context in contexts:
        context.close()
    assert trouble == []


@pytest.fixture
def star(tmp_path):
    """Agents that go east, north (half of the episodes; the others south), north at half the speed, and west."""
    headings = [0, (90, 90, 270, 270), 90, 180]
    return made_up_run(tmp_path / "star", walks(headings, speeds=[SPEED, SPEED, SPEED / 2, SPEED]))


def click(page, x, y):
    """Click the point (x, y), metres, of the first run's map."""
    px, py = page.evaluate(
        """([x, y]) => {
          const run = JSON.parse(document.getElementById("data").textContent).runs[0];
          const canvas = document.querySelector(".picks canvas");
          const view = mapView(run.ground.extent, canvas.clientWidth, AXES);
          return [view.px(x), view.py(y)];
        }""",
        [x, y],
    )
    page.locator(".picks canvas").click(position={"x": px, "y": py})


def enter(page, x, y):
    """Type the point (x, y)."""
    page.get_by_label("x (m)").fill(str(x))
    page.get_by_label("y (m)").fill(str(y))
    page.get_by_role("button", name="Rank agents").click()


def ranking(page):
    """[(agent, how often, how soon)], the best first."""
    return [
        (
            int(row.get_attribute("data-agent")),
            row.locator(".often").inner_text(),
            row.locator(".soon").inner_text(),
        )
        for row in page.locator(".rank").all()
    ]


def painted(page, selector):
    """How many colours the canvases show, each."""
    return page.evaluate(
        """(selector) => [...document.querySelectorAll(selector)].map((canvas) => {
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          return new Set(new Uint32Array(data.buffer)).size;
        })""",
        selector,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_page_is_drawn_and_fits(show, star, scheme, viewport):
    page = show([star], viewport, scheme)
    assert page.title() == "star · kmyriad"
    assert "4 agents explored without reward" in page.locator(".summary").first.inner_text()
    page.wait_for_timeout(100)
    assert all(colours > 3 for colours in painted(page, ".map canvas"))
    assert len(painted(page, ".agents canvas")) == 4
    assert painted(page, ".chart canvas")[0] > 3
    enter(page, 0, 5)
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    for front, back in (("ink", "paper"), ("soft", "paper"), ("ink", "card"), ("soft", "card"), ("accent", "paper")):
        assert page.evaluate(CONTRAST, [front, back]) > 4.5
    for front, back in (("accent-ink", "accent"), ("warn", "warn-paper"), ("soft", "grid")):
        assert page.evaluate(CONTRAST, [front, back]) > 4.5


def test_a_click_ranks_the_agents_by_how_often_and_how_soon(show, star):
    page = show([star])
    before = painted(page, ".picks canvas")
    click(page, 0, 5)
    # Within 1 m of (0, 5) from 4 m on: step 22 at 0.19 m, step 43 at 0.095 m; a step is 5/60 s.
    assert ranking(page) == [
        (2, "4 of 4 episodes", "median first arrival 3.6 s (43 steps)"),
        (1, "2 of 4 episodes", "median first arrival 1.8 s (22 steps)"),
    ]
    assert page.locator(".verdict").inner_text() == (
        "2 agents come to (0, 5); agent 2 does so most often, in 100 % of its episodes."
    )
    assert page.locator(".command code").inner_text() == f"kmyriad jumpstart {shlex.quote(str(star.path))} --goal 0 5"
    assert painted(page, ".picks canvas") != before


def test_of_agents_that_come_as_often_the_soonest_is_first(show, tmp_path):
    page = show([made_up_run(tmp_path / "tie", walks([90, 90, 0], speeds=[SPEED / 2, SPEED, SPEED]))])
    enter(page, 0, 5)
    assert [agent for agent, _, _ in ranking(page)] == [1, 0]
    assert page.inner_text(".verdict") == (
        "2 agents come to (0, 5); agent 1 is the soonest of the 2 that do so most often, in 100 % of their episodes."
    )
    enter(page, 5, 0)
    assert page.inner_text(".verdict") == "Only agent 2 comes to (5, 0), in 100 % of its episodes."


def test_where_no_agent_comes_the_nearest_is_first(show, star):
    page = show([star])
    click(page, -6, -6)
    assert "No agent ever comes within 1 m of (-6, -6). Ranked by closest approach" in page.inner_text(".verdict")
    agents = [agent for agent, _, _ in ranking(page)]
    assert agents[:2] == [3, 1]  # west: 6 m off in every episode; south and north: 6 m and 8.5 m
    assert ranking(page)[0][1:] == ("6.00 m off", "6.00 m in its best episode")
    command = page.locator(".command code").inner_text()
    assert command.endswith("--goal -6 -6")
    parsed = tyro.cli(JumpstartArguments, args=shlex.split(command)[2:])
    assert parsed == JumpstartArguments(str(star.path), (-6.0, -6.0))


def test_the_start_is_no_goal_to_rank_for(show, star):
    page = show([star])
    click(page, 0.3, 0)
    assert "every agent is there at once" in page.inner_text(".verdict")


def test_keys_pick_a_goal_too(show, star):
    page = show([star])
    page.locator(".picks canvas").focus()
    for _ in range(10):
        page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    assert "to (0, 5)" in page.inner_text(".verdict")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "x"


def test_numbers_beyond_the_map_work_and_never_have_an_exponent(show, star):
    page = show([star])
    enter(page, "-1e-7", "-1234.567")
    assert page.locator(".command code").inner_text().endswith("--goal 0 -1234.57")


def test_the_command_is_copied(show, star):
    page = show([star])
    click(page, 0, 5)
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.locator(".command code").inner_text()


def test_where_copying_is_forbidden_the_command_is_selected(show, star):
    page = show([star])
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    click(page, 0, 5)
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Press Ctrl+C").wait_for()
    assert page.evaluate("String(getSelection())") == page.locator(".command code").inner_text()


def test_a_goal_in_a_wall_outside_or_out_of_reach_says_so(show, tmp_path):
    rows = ["1111111", "1000101", "1111111"]
    xy = 0.1 * walks([0, 180], steps=8) + np.array([-1, 0], np.float32)
    run = made_up_run(tmp_path / "maze", xy, env="point-maze", env_settings={"map": rows, "start": [1, 2]})
    page = show([run])
    for point, part in (
        ((1, 0), "lies inside a wall"),
        ((0, 1), "lies inside a wall"),
        ((2, 0), "No way leads from the start"),
    ):
        click(page, *point)
        assert part in page.inner_text(".verdict")
        assert page.locator(".command").count() == 0
    enter(page, 9, 0)
    assert "outside this world" in page.inner_text(".verdict")
    enter(page, 0, 0)
    assert page.locator(".command").count() == 1


def test_ranks_agree_with_the_full_episodes(show, tmp_path):
    """The page sees thinned, rounded paths: it may differ only for episodes near the goal's rim."""
    rng = np.random.default_rng(0)
    turns = rng.normal(0, 0.3, (5, 8, 300)).cumsum(axis=2)
    xy = (0.12 * np.stack([np.cos(turns), np.sin(turns)], axis=-1)).cumsum(axis=2).astype(np.float32)
    page = show([made_up_run(tmp_path / "run", xy)])
    goals = rng.uniform(-5, 5, (40, 2)).tolist()
    found = page.evaluate(
        """(goals) => {
          const { paths: packed, ground } = JSON.parse(document.getElementById("data").textContent).runs[0];
          const paths = unpackPaths(packed, ground);
          return [packed.steps.length, goals.map(([x, y]) => rankAgents(paths, { x, y }, 1))];
        }""",
        goals,
    )
    points, rankings = found
    assert points < 200
    for goal, standings in zip(goals, rankings, strict=True):
        distance = np.linalg.norm(xy - goal, axis=-1)
        fewest, most = ((distance <= radius).any(axis=2).sum(axis=1) for radius in (0.88, 1.12))
        for standing in standings:
            agent = standing["agent"]
            assert fewest[agent] <= standing["successes"] <= most[agent]
            assert standing["closest"] == pytest.approx(distance[agent].min(axis=1).mean(), abs=0.12)
        assert [s["successes"] for s in standings] == sorted((s["successes"] for s in standings), reverse=True)


def test_a_single_feature_is_drawn_over_time_and_picked_at_any_height(show, tmp_path):
    xy = walks([0, 180], speeds=[0.01, 0.01])
    xy[..., 1] = 0
    page = show([made_up_run(tmp_path / "car", xy, env="MountainCarContinuous-v0", features=("0",))])
    heights = page.evaluate(
        """() => {
          const { paths, ground } = JSON.parse(document.getElementById("data").textContent).runs[0];
          return [Array.from(unpackPaths(paths, ground).height).slice(0, paths.steps.length), ground.extent];
        }"""
    )
    (first, *_, last), extent = heights
    assert first < last == pytest.approx(extent[3], abs=1e-5)
    click(page, 5, extent[3] * 0.9)  # the page counts in cells, of 0.09 each
    assert ranking(page)[0][:2] == (0, "4 of 4 episodes")
    assert page.locator(".command code").inner_text().endswith("--goal 0.45")


def test_hostile_names_and_settings_stay_text(show, tmp_path):
    run = made_up_run(tmp_path / HOSTILE, walks([0, 90]), env_settings={HOSTILE: HOSTILE})
    run.evaluation_path.rename(tmp_path / "kept")
    no_maps = made_up_run(tmp_path / f"{HOSTILE} 2", walks([0, 90]))
    jump = made_up_jumpstart(tmp_path / f"{HOSTILE} 3", source=HOSTILE, env=HOSTILE)
    (no_maps.path / "videos").mkdir()
    (no_maps.path / "videos" / f"{HOSTILE}.mp4").write_bytes(bytes(6_000_000))
    page = show([no_maps, run, jump], PHONE)
    click(page, 0, 5)
    assert page.locator("h2").all_inner_texts() == [f"{HOSTILE} 2", HOSTILE, f"{HOSTILE} 3"]
    assert page.locator("img, main script").count() == 0
    command = shlex.split(page.locator(".command code").inner_text())
    assert command == ["kmyriad", "jumpstart", str(no_maps.path), "--goal", "0", "5"]
    link = page.get_by_text("Open the video").get_attribute("href")
    assert page.evaluate("(link) => new URL(link, location.href).protocol", link) == "file:"
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_the_policy_stops_what_is_not_ours(browser, star, tmp_path):
    write_report([star], tmp_path / "report.html")
    context = browser.new_context()
    page = context.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    page.evaluate(
        """() => {
          document.body.insertAdjacentHTML("beforeend", "<img src=data:, onerror='window.hacked = 1'>");
          const script = document.createElement("script");
          script.textContent = "window.hacked = 2";
          document.body.append(script);
        }"""
    )
    page.wait_for_timeout(100)
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'came', () => 'stopped')") == "stopped"
    context.close()


def test_several_runs_share_charts_and_have_a_section_each(show, star, tmp_path):
    other = made_up_run(tmp_path / "other", walks([45]), entropies=[0.5, 0.7])
    jump, bare = made_up_jumpstart(tmp_path / "jump"), made_up_jumpstart(tmp_path / "bare", goal=())
    page = show([star, other, jump, bare])
    assert page.locator("h2").all_inner_texts() == ["star", "other", "jump", "bare"]
    assert page.locator(".chart").count() == 2
    labels = page.locator(".u-legend .u-label").all_inner_texts()
    assert labels == ["environment steps", "star", "other", "environment steps", "jump", "bare"]
    assert page.locator(".picker").count() == 2
    assert page.get_by_text("The goal, (-4, -8), with its radius of 1 m.").count() == 1


def test_a_page_of_a_run_without_anything_says_so(show, tmp_path):
    page = show([create_run(tmp_path / "run", PretrainConfig())])
    assert "no checkpoint yet" in page.inner_text(".missing")
    assert page.locator("canvas").count() == 0


def test_a_video_inside_the_page_is_shown(show, star):
    (star.path / "videos").mkdir()
    (star.path / "videos" / "agent 0.mp4").write_bytes(b"no video, but one to embed")
    page = show([star])
    assert page.locator("video").get_attribute("src").startswith("data:video/mp4;base64,")
    assert page.get_by_text("agent 0.mp4").count() == 1
