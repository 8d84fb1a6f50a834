"""How some tasks of WebArena-Infinity's applications are done, in words of their elements."""

from __future__ import annotations

from tests.webapps.script import Step


def click(path: str) -> Step:
    return "click", path


def rewrite(text: str) -> tuple[Step, Step]:
    """What the field that has the focus says, replaced."""
    return ("press", "Control+A"), ("write", text)


def row(kind: str, text: str) -> str:
    """An element of a class that shows a text."""
    return f"//*[contains(@class,'{kind}')][contains(.,\"{text}\")]"


def section(name: str) -> Step:
    return click(f"//*[@data-section='{name}' or @data-route='{name}']")


def action(name: str) -> Step:
    return click(f"//*[@data-action='{name}']")


def toggle(name: str) -> Step:
    return click(f"//*[@data-toggle-id='{name}']")


def choose(list_: str, option: str) -> tuple[Step, Step]:
    path = f"//*[@data-dropdown-id='{list_}']"
    return click(path), click(f"{path}[normalize-space()='{option}']")


SOLUTIONS: dict[str, tuple[Step, ...]] = {
    "elation-clinical-records/real/task_e1": (
        click("//tr[contains(.,'Johnson, Marcus')]"),
        click("//*[@data-tag='Smoker']"),
    ),
    "elation-clinical-records/real/task_e3": (section("settings"), toggle("pref-coded-assessments")),
    "elation-clinical-records/real/task_e6": (
        click("//tr[contains(.,'Zhao, Helen')]"),
        action("add-tag"),
        click("//*[@id='tag-name']"),
        ("write", "Fall-Risk"),
        action("save-tag"),
    ),
    "elation-patient-communication/real/task_e1": (section("inbox"), click(row("letter-item", "my blood sugar"))),
    "elation-patient-communication/real/task_e2": (click("//*[@data-reminder='rem_10'][contains(.,'Acknowledge')]"),),
    "elation-patient-communication/real/task_e8": (section("drafts"), action("delete-draft"), action("confirm-modal")),
    "elation-prescriptions/real/task_e1": (
        section("rx-requests"),
        click(row("rr-item", "Gabapentin") + "//button[contains(.,'Approve')]"),
    ),
    "elation-prescriptions/real/task_e4": (click("//*[@data-testid='remove-allergy-alg_004']"),),
    "elation-prescriptions/real/task_e8": (
        section("settings"),
        click("//*[@data-testid='delete-template-tpl_010']"),
        click("//*[@id='confirmDeleteTemplate']"),
    ),
    "figma-slides/real/task_e4": (
        action("openShare"),
        click("//*[button[@data-action='removeCollaborator']][contains(.,'Tom Nguyen')]/button"),
    ),
    "figma-slides/real/task_e15": (action("openShare"), *choose("collabRole_user_004", "Can edit")),
    "figma-slides/real/task_m17": (
        action("openShare"),
        *choose("shareLinkAccess", "Anyone with link"),
        *choose("shareLinkRole", "Can edit"),
    ),
    "figma-text-and-typography/real/task_e1": (click(row("layer-row", "Copyright Notice") + "//*[@title='Hide']"),),
    "figma-text-and-typography/real/task_e2": (click(row("layer-row", "Page Title") + "//*[@title='Lock']"),),
    "figma-text-and-typography/real/task_e4": (section("settings"), toggle("toggle-smart-quotes")),
    "gmail/real/task_e1": (click(row("email-item", "Q1 Product Roadmap Review") + "//button[1]"),),
    "gmail/real/task_e3": (
        click(row("email-item", "Property Listing") + "//input"),
        click("//*[@data-testid='toolbar-delete']"),
    ),
    "gmail/real/task_e5": (
        click("//*[@id='settingsBtn']"),
        click("//label[contains(.,'Conversation view off')]//input"),
        action("save-settings"),
    ),
    "linear-account-settings/real/task_e2": (section("preferences"), toggle("pref-convert-emojis")),
    "linear-account-settings/real/task_e11": (
        click("//*[@title='Disconnect Figma']"),
        action("confirmDisconnectAccount"),
    ),
    "linear-account-settings/real/task_m1": (
        action("editFullName"),
        *rewrite("Jordan Rivera"),
        action("confirmEditField"),
        action("editUsername"),
        *rewrite("jrivera"),
        action("confirmEditField"),
    ),
}
