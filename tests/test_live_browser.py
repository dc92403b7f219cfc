"""The live pieces in real Chromium, by mouse, touch and keyboard, held against what the chapters print."""

import json
import random
import re
import time
from collections import defaultdict
from contextlib import contextmanager

import pytest
from conftest import needed
from test_browser import AXE, DESKTOP, PHONE

from onematrix import expected

PLAY = "book/play.html"
PAGES = {"lens": "notebooks/04_dog_drift.html", "slot": "notebooks/05_one_set_of_vectors.html"}
PAGES["step"] = "notebooks/03_gradient_signs.html"
MODEL = "smollm2-135m"  # whose printed figures are on record
PIECES = list(PAGES)
TOUCH = {"has_touch": True, "is_mobile": True, "viewport": PHONE}

SHIFTS = """
  window.shifted = 0;
  new PerformanceObserver(list => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value;
  }).observe({type: "layout-shift", buffered: true});
"""


@pytest.fixture(scope="session", autouse=True)
def site_of_the_recorded_model(built):
    facts = json.loads((built / "facts.json").read_text(encoding="utf-8"))
    if facts["model"]["name"] != MODEL:
        needed(f"the site in _build/html was built on {facts['model']['name']}; these figures are {MODEL}'s")


@contextmanager
def opened(browser, address, piece, page=PLAY, block=None, ready=True, **context):
    """A page with one of its pieces started; `block` names data files that are kept from it."""
    context = browser.new_context(**({"viewport": DESKTOP} | context))
    view = context.new_page()
    view.add_init_script(SHIFTS)
    if block:
        view.route(re.compile(block), lambda route: route.fulfill(status=404))
    view.goto(f"{address}/{page}")
    place = view.locator(f"[data-piece={piece}]")
    place.scroll_into_view_if_needed()
    if ready:
        view.wait_for_selector(f"[data-piece={piece}][data-ready]")
    try:
        yield place
    finally:
        context.close()


def printed(cell: str) -> str:
    return expected.block(MODEL, cell).text


def visible(text: str) -> str:
    """A token as the page writes it: leading spaces as dots."""
    name = text.lstrip(" ")
    return "·" * (len(text) - len(name)) + name


def table(place, n: int) -> list[list[str]]:
    rows = place.locator("table").nth(n).locator("tbody tr")
    return rows.evaluate_all("rows => rows.map(row => [...row.cells].map(cell => cell.innerText))")


# ------------------------------------------------------------------ all three


@pytest.mark.parametrize("piece", PIECES)
def test_stands_in_its_chapter(browser, address, piece):
    with opened(browser, address, piece, page=PAGES[piece]) as place:
        assert place.locator("table").count() > 0


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("piece", PIECES)
def test_axe_and_room(browser, address, piece, size):
    """Nothing serious for axe in light and dark, nothing on the page moves, nothing scrolls it sideways."""
    with opened(browser, address, piece, viewport=size, color_scheme="light") as place:
        view = place.page
        view.evaluate(AXE.read_text(encoding="utf-8"))
        for scheme in ("light", "dark"):
            view.emulate_media(color_scheme=scheme)
            view.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}'")
            found = view.evaluate(f"axe.run('[data-piece={piece}]')")["violations"]
            serious = [v for v in found if v["impact"] in ("serious", "critical")]
            assert [(v["id"], v["nodes"][0]["html"][:120]) for v in serious] == []
        assert view.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert view.evaluate("window.shifted") < 0.01


@pytest.mark.parametrize("piece", PIECES)
def test_without_javascript(browser, address, piece):
    context = browser.new_context(java_script_enabled=False)
    view = context.new_page()
    view.goto(f"{address}/{PLAY}")
    place = view.locator(f"[data-piece={piece}]")
    link = place.locator("a").first
    page, _, anchor = link.get_attribute("href").partition("#")
    assert place.bounding_box()["height"] < 200  # no empty room
    view.goto(f"{address}/book/{page}")
    assert view.locator(f"[id='{anchor}']").is_visible()
    context.close()


@pytest.mark.parametrize(("piece", "file"), [("lens", "lens-0.json"), ("slot", "slot.json"), ("step", "step-0.json")])
def test_missing_data_are_said_and_can_be_tried_again(browser, address, piece, file):
    with opened(browser, address, piece, block=re.escape(file), ready=False) as place:
        note = place.get_by_text("could not be started")
        note.wait_for()
        assert file.removesuffix(".json") in note.inner_text()
        assert place.locator("a").first.is_visible()  # what stands in stays
        place.page.unroute_all()
        place.get_by_role("button", name="Try again").click()
        place.page.wait_for_selector(f"[data-piece={piece}][data-ready]")


# ------------------------------------------------------------------ the lens


def lens_cell(place, layer: str, position: int):
    row = place.get_by_role("row").filter(has=place.page.get_by_role("rowheader", name=layer, exact=True)).first
    return row.get_by_role("gridcell").nth(position)


def lens_lines() -> dict[str, list[tuple[str, str]]]:
    """The chapter's table: layer -> the three best tokens and their probabilities."""
    lines = {}
    for line in printed("dog-lens").splitlines():
        layer = re.sub(r"  +", " ", line[:11].strip())
        lines[layer] = re.findall(r'"([^"]+)" +([\d.]+)', line[11:])
    return lines


def shown_list(place) -> list[tuple[str, str]]:
    return [tuple(row) for row in table(place, 1)]


def test_lens_by_mouse_shows_what_the_chapter_prints(browser, address):
    with opened(browser, address, "lens") as place:
        for layer, best in lens_lines().items():
            lens_cell(place, layer, 1).hover()
            assert shown_list(place)[: len(best)] == [(visible(t), p) for t, p in best]


def test_lens_by_keyboard_and_without_the_norm(browser, address):
    """From the first cell down by arrow keys; the ranks of " dog" are those of the chapter's four ways to rank."""
    with opened(browser, address, "lens") as place:
        ranks = {
            re.sub(r"  +", " ", line[:11].strip()): [int(n) for n in line[11:].split()]
            for line in printed("four-ranks").splitlines()[2:]
        }
        lens_cell(place, "embedding", 1).focus()
        for norm, column in ((True, 3), (False, 2)):
            if not norm:
                place.get_by_label("final norm").press("Space")
                lens_cell(place, "embedding", 1).focus()
            for layer in range(31):
                name = f"block {layer}" if layer else "embedding"
                if name in ranks:
                    said = place.get_by_text(re.compile("is at rank")).inner_text()
                    assert int(re.search(r"rank ([\d,]+)", said)[1].replace(",", "")) == ranks[name][column], name
                place.page.keyboard.press("ArrowDown")
            place.page.keyboard.press("Home")
            assert place.locator("[role=gridcell][tabindex='0']").count() == 1


def test_lens_by_touch_follows_a_token_through_the_blocks(browser, address):
    with opened(browser, address, "lens", **TOUCH) as place:
        lens_cell(place, "block 30", 1).tap()
        place.get_by_role("button", name="is", exact=False).first.tap()
        place.locator("[aria-live]").filter(has_text='" is": rank').wait_for()
        assert "at the last block" in place.locator("[aria-live]").inner_text()
        label = place.locator("svg").get_attribute("aria-label")
        assert '" is"' in label
        assert label.endswith("2 at the end.")


def test_lens_follows_any_token_of_the_vocabulary(browser, address, model):
    """One outside the prompt's list, at the last position in rounded ranks; one inside it, exactly."""
    from onematrix import lens, rank

    scores = lens(model, model.states("The dog"))
    with opened(browser, address, "lens") as place:
        box = place.get_by_label("or any token")
        box.press_sequentially(" Paris")
        place.get_by_role("listbox").get_by_role("option").first.wait_for()
        box.press("Enter")
        place.locator("[aria-live]").filter(has_text='" Paris": rank').wait_for()
        for layer in (0, 7, 30):
            lens_cell(place, f"block {layer}" if layer else "embedding", 1).hover()
            said = place.get_by_text(re.compile("is at rank")).inner_text()
            shown = int(re.search(r"rank (?:about )?([\d,]+)", said)[1].replace(",", ""))
            true = rank(scores[layer], model.id(" Paris"))
            assert abs(shown / true - 1) < 0.08  # rounded twice: to a step, and to two digits
            assert ("about" in said) == (true > 20)
        lens_cell(place, "block 7", 0).hover()
        place.get_by_text("can be followed at the last position").wait_for()
        assert place.locator("svg").count() == 0
        box.fill(" cat")
        box.press("Enter")
        place.locator("[aria-live]").filter(has_text='" cat": rank').wait_for()
        lens_cell(place, "block 30", 1).hover()
        exact = f"is at rank {rank(scores[-1], model.id(' cat'))} here"
        assert exact in place.get_by_text(re.compile("is at rank")).inner_text()
        assert box.input_value() == ""


def test_lens_keeps_what_it_follows_when_a_tokens_numbers_are_missing(browser, address):
    with opened(browser, address, "lens", block=r"walks-\d+\.json") as place:
        box = place.get_by_label("or any token")
        box.fill(" Paris")
        box.press("Enter")
        place.get_by_text(re.compile("Nothing changed: the numbers in walks")).wait_for()
        assert '" dog"' in place.locator("svg").get_attribute("aria-label")


def test_lens_takes_other_prompts_and_scrolls_inside(browser, address):
    with opened(browser, address, "lens", viewport=PHONE) as place:
        prompts = place.get_by_label("Prompt")
        for option in prompts.locator("option").all_inner_texts():
            prompts.select_option(label=option)
            place.get_by_role("grid", name=f'The lens on "{option}"').wait_for()
        grid = place.locator(".om-live-grid")
        assert grid.evaluate("e => e.scrollWidth > e.clientWidth")
        assert place.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_lens_keeps_what_it_shows_when_a_file_is_missing(browser, address):
    with opened(browser, address, "lens", block=r"lens-2\.json") as place:
        before = place.get_by_role("grid").get_attribute("aria-label")
        place.get_by_label("Prompt").select_option(index=2)
        place.get_by_text("lens-2").wait_for()
        assert place.get_by_role("grid").get_attribute("aria-label") == before


# ------------------------------------------------------------------ right meaning, wrong slot


def test_slot_shows_what_the_chapters_print(browser, address):
    with opened(browser, address, "slot") as place:
        near = re.findall(r'(\d+) +"(.+?)" +([\d.]+)', printed("nearest-rows"))[:10]
        assert [row[:3] for row in table(place, 0)] == [[visible(t), value, rank] for rank, t, value in near]
        answers = re.findall(r'"(.+?)" +([\d.]+)', printed("dog-next"))
        assert [row[:2] for row in table(place, 1)][: len(answers)] == [[visible(t), p] for t, p in answers]
        ranks = {
            token: [f"{int(n):,}" for n in numbers]
            for token, *numbers in re.findall(
                r'"(.+?)" +nearest rows +(\d+) +predictions +(\d+)', printed("the-winner-too")
            )
        }
        assert [row[2:] for row in table(place, 0) if row[0] == "·cat"] == [ranks[" cat"]]
        assert [row[2:] for row in table(place, 1) if row[0] == "'s"] == [ranks["'s"]]
        assert f"itself is answer number {ranks[' dog'][1]}." in place.locator("[aria-live]").inner_text()


def test_slot_by_keyboard(browser, address):
    with opened(browser, address, "slot") as place:
        box = place.get_by_role("combobox")
        box.focus()
        place.page.keyboard.type("kin")
        place.get_by_role("option").first.wait_for()
        options = place.get_by_role("option").all_inner_texts()
        assert all(option.lstrip("·").lower().startswith("kin") for option in options)
        box.press("ArrowDown")
        assert box.get_attribute("aria-activedescendant") == "om-slot-tokens-1"
        box.press("Enter")
        place.locator("caption", has_text=options[1]).first.wait_for()
        assert place.get_by_role("listbox").count() == 0
        box.fill(" king")
        box.press("Enter")  # at once, before the list is there
        place.locator("caption", has_text="·king").first.wait_for()
        place.get_by_label("The …", exact=True).focus()
        place.page.keyboard.press("ArrowRight")
        assert "A·king" in place.locator("caption").nth(1).inner_text().replace(" ", "")


def test_slot_by_touch(browser, address):
    with opened(browser, address, "slot", **TOUCH) as place:
        place.get_by_role("button", name="water").tap()
        place.locator("caption", has_text="·water").first.wait_for()
        place.get_by_label("She saw the …").tap()
        assert "She saw the" in place.locator("caption").nth(1).inner_text()
        place.get_by_role("combobox").fill("Paris")
        place.get_by_role("option").first.tap()
        place.locator("caption", has_text="·Paris").first.wait_for()


def test_slot_says_where_predictions_are_not_kept_and_what_is_no_token(browser, address):
    with opened(browser, address, "slot") as place:
        box = place.get_by_role("combobox")
        box.fill("dog")
        place.get_by_role("option").nth(1).click()  # without the space
        place.get_by_text("keeps predictions for").wait_for()
        assert all(row[3] == "–" for row in table(place, 0))
        box.fill("qqqqqq")
        place.get_by_text("No token begins so.").wait_for()
        box.press("Enter")
        assert place.locator("table").count() == 1


def test_slot_link_carries_the_state(browser, address):
    with opened(browser, address, "slot") as place:
        place.get_by_role("button", name="king").click()
        place.get_by_label("A …").check()
        link = place.page.evaluate("location.hash")
    with opened(browser, address, "slot", page=f"{PLAY}{link}") as place:
        place.locator("caption", has_text="·king").first.wait_for()
        assert place.get_by_label("A …").is_checked()
        assert place.page.evaluate("e => e.getBoundingClientRect().top < innerHeight", place.element_handle())
    with opened(browser, address, "slot", page=f"{PLAY}#live-slot?token=no+such+token&frame=The") as place:
        place.get_by_text("is not one of this model's tokens").wait_for()


def test_slot_on_200_tokens_drawn_at_random(browser, address, model):
    """Each is asked for by a link, as a reader would, and held against `onematrix`."""
    from onematrix import cosine, live, neighbours

    names = live.names(model)
    rows = defaultdict(list)  # as seen on the page, a leading space and a middle dot are one
    for i, name in enumerate(names):
        rows[visible(name)].append(i)
    with opened(browser, address, "slot") as place:
        for row in random.Random(1).sample(range(model.V), 200):
            place.page.evaluate(
                "([token, frame]) => { location.hash = 'live-slot?' + new URLSearchParams({token, frame}) }",
                [names[row], "The"],
            )
            place.page.wait_for_function(
                "name => document.querySelector('[data-piece=slot] [role=combobox]').value === name", arg=names[row]
            )
            shown = table(place, 0)
            for line, (_, value) in zip(shown, neighbours(model.W, row, live.K), strict=True):
                assert abs(float(line[1]) - value) <= 0.00051
            for name, value, *_ in shown:  # and each token has the cosine that stands beside it
                assert (cosine(model.W[rows[name]], model.W[row]) - float(value)).abs().min() <= 0.00051


@pytest.fixture(scope="module")
def model():
    from onematrix import load

    return load(MODEL)


def test_slot_is_quick_and_one_look_up_is_small(browser, address):
    with opened(browser, address, "slot") as place:
        sizes = []
        place.page.on("response", lambda r: sizes.append(int(r.headers.get("content-length", 0))))
        box = place.get_by_role("combobox")
        box.fill("winter")
        place.get_by_role("option").first.wait_for()
        start = time.perf_counter()
        box.press("Enter")
        place.locator("caption", has_text="·winter").first.wait_for()
        assert time.perf_counter() - start < 1
        assert 0 < sum(sizes) <= 50_000


# ------------------------------------------------------------------ one step


def board(place) -> dict[str, str]:
    return {
        entry.locator("dt").inner_text(): entry.locator("dd").inner_text()
        for entry in place.locator(".om-live-board > div").all()
    }


def test_step_takes_the_steps_of_the_chapter(browser, address):
    losses = dict(
        re.findall(r"^(before|step on x|step on the rows|both steps) +loss ([\d.]+)", printed("part2-step"), re.M)
    )
    with opened(browser, address, "step") as place:
        assert board(place)["loss"] == losses["before"]
        for move, what in (
            ("the rows and x", "both steps"),
            ("x only", "step on x"),
            ("the rows only", "step on the rows"),
        ):
            place.get_by_label("Move", exact=True).select_option(label=move)
            place.get_by_role("button", name="Step", exact=True).click()
            assert float(board(place)["loss"]) == pytest.approx(float(losses[what]), abs=1.1e-4)
        said = place.locator("[aria-live]").inner_text()
        assert losses["before"] in said


def test_step_shows_the_pushes_and_the_cosine_of_the_chapter(browser, address):
    with opened(browser, address, "step") as place:
        shares = dict(re.findall(r'"(.+?)" +p = [\d.]+ +([\d.]+%)', printed("sky-forces")))
        shown = {row[0]: row[3] for row in table(place, 0)}
        assert {visible(token): share for token, share in shares.items()}.items() <= shown.items()
        third = re.search(r"step for x, .*?(-?[\d.]+)$", printed("gradient-cosines"), re.M)[1]
        assert board(place)["cosine of the step for x and the row"] == third
        target = re.search(r"p = ([\d.]+)", printed("sky-target"))[1]
        assert board(place)['probability of " blue"'] == target


def test_step_by_keyboard(browser, address):
    """A larger learning rate gains more; the slider and the button answer to keys."""
    with opened(browser, address, "step") as place:
        gains = []
        for _ in range(2):
            before = float(board(place)["loss"])
            place.get_by_role("button", name="Step", exact=True).press("Enter")
            gains.append(before - float(board(place)["loss"]))
            place.get_by_label("Learning rate").press("ArrowRight")
            assert place.locator("[aria-live]").inner_text() == "No step taken yet."
        assert gains[1] > 1.5 * gains[0]


def test_step_by_touch_draws_x_and_the_target_together(browser, address):
    with opened(browser, address, "step", **TOUCH) as place:
        cosines = []
        for _ in range(3):
            cosines.append(float(board(place)["cosine of x and the row"]))
            place.get_by_role("button", name="Ten steps").tap()
        assert cosines == sorted(cosines)
        assert cosines[-1] > cosines[0]
        place.get_by_role("button", name="Start again").tap()
        assert float(board(place)["cosine of x and the row"]) == cosines[0]


def test_step_takes_every_prompt_and_target(browser, address):
    with opened(browser, address, "step") as place:
        for prompt in place.get_by_label("Prompt").locator("option").all_inner_texts():
            place.get_by_label("Prompt").select_option(label=prompt)
            place.locator("caption", has_text=f"“{prompt}”").wait_for()
            target = place.get_by_label("Target")
            for option in target.locator("option").all_inner_texts():
                target.select_option(label=option)
                before = float(board(place)["loss"])
                place.get_by_role("button", name="Ten steps").click()
                assert float(board(place)["loss"]) < before
                assert f"probability of {option}" in board(place)
