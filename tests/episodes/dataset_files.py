"""Small data sets in the layouts that others published: the words and pictures are made here."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

WIDTH, HEIGHT = 1200, 600
SMALL = (320, 180)


def picture(shade: int, size: tuple[int, int] = SMALL, kind: str = "PNG") -> bytes:
    """A window with a few things in it."""
    image = Image.new("RGB", size, (shade, 220, 240))
    draw = ImageDraw.Draw(image)
    draw.rectangle((size[0] // 10, size[1] // 10, size[0] // 2, size[1] // 2), fill="white", outline="black")
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def write_jsonl(path: Path, records: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def write_images(folder: Path, *names: str, size: tuple[int, int] = SMALL) -> None:
    for shade, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(10 * shade, size, "JPEG" if path.suffix == ".jpg" else "PNG"))


def agentnet_step(index: int, code: str, **value: Any) -> dict[str, Any]:
    words = {"observation": f"screen {index}", "thought": f"because {index}", "action": f"Do part {index}."}
    flags = {"last_step_correct": True, "last_step_redundant": False, "reflection": "It worked."}
    return {"index": index, "image": f"{index}.png", "value": {**words, "code": code, **flags, **value}}


def agentnet_task(number: int, *codes: str, **changes: Any) -> dict[str, Any]:
    return {
        "task_id": f"2024_{number}",
        "instruction": f"Sort table {number}",
        "natural_language_task": "Could you sort it?",
        "task_completed": True,
        "alignment_score": 7,
        "efficiency_score": 6,
        "task_difficulty": 3,
        "traj": [agentnet_step(index, code) for index, code in enumerate(codes)],
        **changes,
    }


def agentnet(folder: Path) -> Path:
    """As xlangai/AgentNet: a JSONL file and a folder of images, points as shares of the sides."""
    write_images(folder / "images", *(f"{index}.png" for index in range(8)))
    first = agentnet_task(
        0,
        "pyautogui.click(x=0.1632, y=0.2711)",
        "pyautogui.doubleClick(x=0.5, y=0.25)",
        "pyautogui.write(message='12.5')",
        "pyautogui.hotkey(['ctrl', 's'])",
        "pyautogui.scroll(-5)",
        "pyautogui.moveTo(x=0.2, y=0.2)\npyautogui.dragTo(x=0.75, y=0.5, button='left')",
        "computer.wait()",
        "computer.terminate(status='success')",
    )
    second = agentnet_task(1, "pyautogui.rightClick(x=1.0, y=0.0)", "pyautogui.press('enter')")
    second["traj"][0]["value"]["last_step_correct"] = False
    third = agentnet_task(2, "pyautogui.click(x=0.3, y=0.4)", "pyautogui.keyDown('shift')", task_completed=False)
    return write_jsonl(folder / "agentnet_ubuntu.jsonl", [first, second, third])


def scalecua_step(task: str, image: str, previous: list[str], operation: str, action: str) -> dict[str, Any]:
    before = "\n".join(f'Step {n}: "{said}"' for n, said in enumerate(previous, 1)) or "None"
    asked = f"<image>\nWhat comes next?\n\nTask: {task}\n\nPrevious operations:\n{before}"
    answer = f"<think>\nA reason.\n</think>\n<operation>\n{operation}\n</operation>\n<action>\n{action}\n</action>"
    return {
        "image": image,
        "conversations": [{"from": "human", "value": asked}, {"from": "gpt", "value": answer}],
        "width": SMALL[0],
        "height": SMALL[1],
    }


def scalecua(folder: Path) -> Path:
    """As ScaleCUA: a meta file that names an annotation file and the folder of its images; a record is a step."""
    write_images(folder / "shots", "a/1.png", "a/2.png", "b/1.jpg")
    steps = [
        scalecua_step("Find War and Peace", "a/1.png", [], "Open the library", "click(x=0.3674, y=0.9192)"),
        scalecua_step("Find War and Peace", "a/2.png", ["Open the library"], "Type it", "write(message='War')"),
        scalecua_step("Send it", "b/1.jpg", ["Something else"], "Press send", "click(x=0.9, y=0.1)"),
        scalecua_step("Open it", "b/1.jpg", [], "Open the app", "open_app(app_name='Mail')"),
    ]
    write_jsonl(folder / "anns" / "steps.jsonl", steps)
    meta = {"mine": {"root": "shots/", "annotation": "anns/steps.jsonl", "repeat_time": 1, "length": len(steps)}}
    path = folder / "meta.json"
    path.write_text(json.dumps(meta))
    return path


def aguvis(folder: Path) -> Path:
    """As Aguvis, first stage (several questions about one picture) and second stage (thought, then code)."""
    write_images(folder, "1.png", "2.png", "3.png")
    first = {
        "image": "1.png",
        "conversations": [
            {"from": "human", "value": "<image>\nthe search box"},
            {"from": "gpt", "value": "pyautogui.click(x=0.1234, y=0.5)", "recipient": "os", "end_turn": True},
            {"from": "human", "value": "the close button"},
            {"from": "gpt", "value": "pyautogui.click(x=0.99, y=0.02)", "recipient": "os", "end_turn": True},
        ],
    }
    several = {
        "image": ["2.png", "3.png"],
        "conversations": [
            {"from": "human", "value": "<image>\nthe menu"},
            {"from": "gpt", "value": "pyautogui.click(x=0.2, y=0.2)"},
            {"from": "human", "value": "<image>\nthe second menu"},
            {"from": "gpt", "value": "pyautogui.click(x=0.3, y=0.3)"},
        ],
    }
    second = {
        "image": "2.png",
        "conversations": [
            {"from": "system", "value": "You are a GUI agent."},
            {"from": "human", "value": "<image>\nGo on.\n\nInstruction: buy buns\n\nPrevious actions:\nNone"},
            {"from": "gpt", "recipient": "all", "value": "Thought: It is below.\nAction: Scroll down."},
            {"from": "gpt", "recipient": "os", "value": "pyautogui.scroll(page=-0.3)", "end_turn": True},
        ],
    }
    path = folder / "stage.json"
    path.write_text(json.dumps([first, several, second], indent=1))
    return path


def data_url(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64," + base64.b64encode(data).decode()


def user(text: str, *images: str) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": image}} for image in images]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def assistant(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def openai(folder: Path) -> Path:
    """Chat messages: images in data URLs, in files, and in a list beside the messages."""
    write_images(folder, "shot.png", "shots/later.png")
    inside = {
        "messages": [
            {"role": "system", "content": "You use a computer."},
            user("Task: log in", data_url(picture(3, kind="JPEG"), "jpeg")),
            assistant('{"note":"a form","thought":"the name first","action":{"action":"click","x":250,"y":300}}'),
            user("The last action was carried out.", "shot.png"),
            assistant('{"note":"","thought":"","action":{"action":"type","text":"ada"}}', weight=0),
            user("The last action was carried out.", "shots/later.png"),
            assistant('{"note":"","thought":"done","action":{"action":"answer","text":"in"}}'),
        ]
    }
    beside = {
        "messages": [{"role": "user", "content": "<image>press Save"}, assistant('{"action":"click","x":900,"y":40}')],
        "images": ["shot.png"],
    }
    return write_jsonl(folder / "chat.jsonl", [inside, beside])


def screenspot(folder: Path, form: str = "v2") -> Path:
    """v2: x, y, width, height in pixels. pro: corners in pixels. hub: corners as shares of the sides."""
    boxes = [(100, 50, 300, 90), (1100, 550, 1190, 590), (40, 300, 80, 320), (500, 10, 700, 60)]
    written: dict[str, Any] = {
        "v2": lambda x, y, right, low: [x, y, right - x, low - y],
        "pro": lambda *box: list(box),
        "hub": lambda x, y, right, low: [x / WIDTH, y / HEIGHT, right / WIDTH, low / HEIGHT],
    }
    write_images(folder / "images", "pc_0.png", "pc_1.png", size=(WIDTH, HEIGHT))
    records = [
        {
            "img_filename": f"pc_{number % 2}.png",
            "bbox": written[form](*box),
            "instruction": f"element {number}",
            **(
                {
                    "id": f"x_{number}",
                    "img_size": [WIDTH, HEIGHT],
                    "ui_type": "icon",
                    "group": "CAD",
                    "platform": "linux",
                }
                if form == "pro"
                else {"data_type": ["text", "icon"][number % 2], "data_source": "windows"}
            ),
        }
        for number, box in enumerate(boxes)
    ]
    path = folder / ("photoshop_linux.json" if form == "pro" else "screenspot_desktop_v2.json")
    path.write_text(json.dumps(records))
    return path
