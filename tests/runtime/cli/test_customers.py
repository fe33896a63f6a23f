"""What the command line shows of a customer, and how it forgets one."""

import json
import sqlite3

import pytest

from interturn.runtime import Keyring, Runtime, Settings
from interturn.runtime.archive import Archive

SAID = (
    "Hola, me llamo Ana y vivo en Madrid.",
    "Soy alérgica a las nueces.",
    "Me he mudado a Valencia.",
)


@pytest.fixture
def anyio_backend():
    """Run on asyncio, which aiosqlite needs."""
    return "asyncio"


def told(interturn, customer="ana", session="s", said=SAID):
    """Say these things as a customer, into ``memory.db``."""
    heard = "".join(f"{text}\n" for text in said)
    return interturn("chat", "--session", session, "--customer", customer, heard=heard)


def known(interturn, customer="ana"):
    """Return what `show --customer --json` writes."""
    return json.loads(interturn("show", "--customer", customer, "--json").stdout)


def files(interturn):
    """Return the folder's files with their bytes, but for those that readers of a log leave."""
    return {
        path.name: path.read_bytes()
        for path in interturn.folder.iterdir()
        if not path.name.endswith(("-shm", "-wal"))
    }


# The archive


@pytest.mark.anyio
@pytest.mark.parametrize("profile_tokens", [8, 20, 120])
async def test_the_archive_shows_a_customer_as_the_owner_does(tmp_path, profile_tokens):
    """Facts, profile and sessions read from the files are those that the runtime serves."""
    path, keyring = tmp_path / "m.db", Keyring.generate()
    settings = Settings(profile_tokens=profile_tokens)
    async with Runtime.open(path, keyring=keyring, settings=settings) as runtime:
        session = runtime.session("s", customer="ana")
        for text in SAID:
            await session.record(text, "Anotado.")
        await runtime.flush()
        customer = runtime.customer("ana")
        told_fact = await customer.remember("Es clienta desde 2019.", slot="since")
        served = await customer.facts(), await customer.profile(), await customer.sessions()
    assert told_fact in served[0]
    before = path.read_bytes()
    async with Archive.open(path, keyring=keyring, settings=settings) as archive:
        found = await archive.customer("ana")
        assert await archive.customer("nadie") is None
    assert (found.facts, found.profile, list(found.sessions)) == served
    assert found.profile
    assert path.read_bytes() == before


@pytest.mark.anyio
async def test_a_customer_of_whom_nothing_was_learnt_is_no_stranger(tmp_path):
    """Someone who only said hello has sessions, no facts and no profile."""
    path, keyring = tmp_path / "m.db", Keyring.generate()
    async with Runtime.open(path, keyring=keyring) as runtime:
        await runtime.session("s", customer="ana").record("Hola", "Buenas")
    async with Archive.open(path, keyring=keyring) as archive:
        found = await archive.customer("ana")
    assert (found.facts, found.profile, found.sessions) == ((), "", ("s",))


def test_doctor_finds_facts_that_dont_open(interturn):
    """A changed snapshot of a customer is one finding, and their sessions are examined still."""
    told(interturn)
    clean = json.loads(interturn("doctor", "--json").stdout)
    assert (clean["facts"], clean["findings"]) == (len(known(interturn)["facts"]), [])
    with_changes(interturn, "UPDATE customers SET snapshot = zeroblob(60)")
    found = json.loads(interturn("doctor", "--json", status=1).stdout)
    assert [finding["kind"] for finding in found["findings"]] == ["tampered"]
    assert (found["sessions"], found["messages"]) == (1, 6)
    assert "customers" in interturn.refusal("show", "--customer", "ana")
    assert interturn("show", "--session", "s").stdout, "the session itself opens"


def test_doctor_finds_marks_past_the_last_message(interturn):
    """Facts can't have been learnt from messages that aren't there."""
    told(interturn)
    with_changes(interturn, "UPDATE sessions SET derived = 40")
    found = json.loads(interturn("doctor", "--json", status=1).stdout)
    assert [finding["kind"] for finding in found["findings"]] == ["mark"]


def with_changes(interturn, statement):
    """Change the database behind everyone's back."""
    database = sqlite3.connect(interturn.folder / "memory.db")
    database.execute(statement)
    database.commit()
    database.close()


# show


def test_show_tells_what_is_known_of_a_customer(interturn):
    """Each fact with what it replaced, since when, how often and from where; profile; sessions."""
    told(interturn)
    told(
        interturn,
        session="t",
        said=["Ponme los pedidos a nombre de Ana, soy alérgica a las nueces"],
    )
    shown = interturn("show", "--customer", "ana", "--lang", "es").stdout
    places = [shown.index(f"\n{title}") for title in ("Hechos: ", "Sesiones: 2")]
    assert shown.startswith("Perfil:\n")
    assert places == sorted(places)
    assert "  domicilio: " in shown
    assert "Valencia" in shown
    assert "      antes: " in shown
    assert "sesión s (5)" in shown
    assert shown.endswith("  s\n  t\n")
    facts = {fact["slot"].partition(":")[0]: fact for fact in known(interturn)["facts"]}
    assert "Valencia" in facts["home"]["text"]
    assert "Madrid" in facts["home"]["was"]
    assert facts["home"]["source"] == ["s", 5]
    assert facts["allergy"]["sightings"] == 2
    assert known(interturn)["sessions"] == ["s", "t"]
    assert "nueces" in known(interturn)["profile"]
    drawn = interturn.on_a_terminal("show", "--customer", "ana", "--lang", "es", COLUMNS="120")
    for word in ("╭", "Perfil", "Hechos", "Tema", "Fechas", "Veces", "antes: ", "Sesiones"):
        assert word in drawn


def test_facts_of_anyone_cant_command_the_terminal(interturn):
    """Control characters of a fact or a session's name are spelled, in lines and drawings."""
    told(
        interturn,
        session="a\u202eb",
        said=["Soy alérgica a las \x1b[2Jnueces \x9b31m[red]todas[/]"],
    )
    shown = interturn("show", "--customer", "ana").stdout
    drawn = interturn.on_a_terminal("show", "--customer", "ana")
    assert "\x1b[2J" not in shown + drawn
    assert "\x9b" not in shown + drawn
    assert "\u202e" not in shown + drawn


def test_export_of_a_customer_is_the_conversation_alone(interturn):
    """Facts, profile and slots are the machinery: no export holds them."""
    told(interturn)
    lines = interturn("export", "--customer", "ana").stdout.splitlines()
    assert len(lines) == 6
    names = ("customer", "session", "seq", "role", "at", "text")
    assert {tuple(json.loads(line)) for line in lines} == {names}
    page = interturn("export", "--customer", "ana", "--format", "html").stdout
    assert page.count("<p") == 6


# chat, replay, demo


def test_chat_tells_what_it_knows_of_who_talks(interturn):
    """What was just said is among the facts, also of a visitor without a name."""
    heard = "Soy alérgica a las nueces\n/facts\n"
    shown = interturn("chat", "--session", "s", "--lang", "es", heard=heard).stdout
    assert "  alergia: nueces: Soy alérgica a las nueces" in shown


def test_replay_ends_with_what_is_known(interturn):
    """Facts and profile of the longest conversation's customer, and facts per 100 turns."""
    messages = [
        message
        for number in range(25)
        for message in (
            {
                "role": "user",
                "content": f"Soy alérgica a {'abcdefghijklmnopqrstuvwxyz'[number]}lmendras.",
            },
            {"role": "assistant", "content": "Anotado."},
        )
    ]
    short = [{"role": "user", "content": "Hola"}, {"role": "assistant", "content": "Buenas"}]
    path = interturn.write("a.json", [{"messages": messages}, {"messages": short}])
    report = json.loads(interturn("replay", path, "--json").stdout)
    facts = report["remembered"]["facts"]
    assert len(facts) == report["facts"] > 20
    assert report["facts_per_100_turns"] == round(100 * len(facts) / 26, 1)
    assert report["remembered"]["profile"]
    assert report["remembered"]["sessions"] == ["a/1"]
    shown = interturn("replay", path, "--lang", "es").stdout
    assert shown.count("  alergia: ") == 20
    assert f"y {len(facts) - 20} más" in shown
    per_100 = str(report["facts_per_100_turns"]).replace(".", ",")
    assert f"Hechos por cada 100 turnos: {per_100}" in shown


def test_replay_of_nothing_says_no_facts(interturn):
    """A file without a turn has no customer to tell of."""
    path = interturn.write("a.json", {"messages": [{"role": "user", "content": "¿Hola?"}]})
    report = json.loads(interturn("replay", path, "--json").stdout)
    assert (report["facts"], report["facts_per_100_turns"], report["remembered"]) == (0, None, None)
    assert "Facts" not in interturn("replay", path).stdout


@pytest.mark.parametrize("language", ["es", "en"])
def test_demo_ends_with_what_stays(interturn, language):
    """Profile and facts of the customer, in their words, and what a question will find."""
    shown = interturn("demo", "--lang", language).stdout
    titles = {
        "es": ("Perfil:", "Hechos:", "En otra sesión"),
        "en": ("Profile:", "Facts:", "In another"),
    }
    places = [shown.rindex(title) for title in titles[language]]
    assert places == sorted(places)
    assert "Marta Quiroga" in shown[places[0] : places[1]]
    assert "recojo todo en la tienda de Gijón" in shown[places[1] : places[2]]
    assert "«lo recojo todo en la tienda de Gijón»" in shown[places[2] :]


# forget


def test_forget_destroys_a_customer_and_tells_what_went(interturn):
    """With --yes it is done at once: counts and a time, and nobody else is touched."""
    told(interturn)
    told(interturn, "luis", "l", ["Vivo en Bilbao."])
    facts = len(known(interturn)["facts"])
    shown = interturn("forget", "--customer", "ana", "--yes", "--lang", "es").stdout
    assert shown.startswith("Destruido el ")
    for row in ("Sesiones: 1", "Mensajes: 6", f"Hechos: {facts}"):
        assert f"  {row}\n" in shown
    interturn.refusal("show", "--customer", "ana")
    interturn.refusal("show", "--session", "s")
    assert known(interturn, "luis")["sessions"] == ["l"]
    assert json.loads(interturn("doctor", "--json").stdout)["customers"] == 1
    again = interturn("forget", "--customer", "ana", "--yes", "--lang", "es").stdout
    assert again == "No había nada de este cliente.\n"
    receipt = json.loads(interturn("forget", "--customer", "luis", "--yes", "--json").stdout)
    assert (receipt["sessions"], receipt["messages"]) == (1, 2)
    assert receipt["at"]


@pytest.mark.parametrize(("language", "answers"), [("es", ["\n", "y\n", "\x04"]), ("en", ["s\n"])])
def test_forget_asks_and_no_is_the_default(interturn, language, answers):
    """On a terminal anything but yes, in the chosen language, leaves every byte as it was."""
    told(interturn)
    command = ["forget", "--customer", "ana", "--lang", language]
    before = files(interturn)
    for answer in answers:
        shown = interturn.on_a_terminal(*command, heard=answer, status=1)
        assert "[s/N]" in shown if language == "es" else "[y/N]" in shown
        assert "No se ha tocado nada" in shown if language == "es" else "Nothing was" in shown
    assert files(interturn) == before


@pytest.mark.parametrize(("language", "answer"), [("es", "Sí\n"), ("en", "y\n")])
def test_forget_does_what_was_confirmed(interturn, language, answer):
    """Yes is yes, and the question says what there is to lose."""
    told(interturn)
    shown = interturn.on_a_terminal("forget", "--customer", "ana", "--lang", language, heard=answer)
    assert ("sesiones: 1" if language == "es" else "sessions: 1") in shown
    interturn.refusal("show", "--customer", "ana")


@pytest.mark.parametrize("language", ["es", "en"])
def test_forget_without_anyone_to_ask_is_refused(interturn, language):
    """A script must say --yes: else one line, status 1, and nothing is touched."""
    told(interturn)
    before = files(interturn)
    refusal = interturn.refusal("forget", "--customer", "ana", "--lang", language)
    assert "--yes" in refusal
    assert files(interturn) == before
