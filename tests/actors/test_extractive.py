from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interturn.actors.extractive import MOST_SENTENCES, Extractive
from interturn.actors.message import Message
from interturn.actors.summary import Summary

AT = datetime(2025, 3, 3, tzinfo=UTC)
FAMILY = "👨‍👩‍👧‍👦"
GOLD = Path(__file__).parents[3] / "shared" / "data" / "gold_es" / "gold_es.json"


class Words:
    """Counts a token for every four characters, and how often it was asked."""

    name = "quarter"

    def __init__(self):
        self.calls = 0

    def count(self, text):
        """Count a text."""
        self.calls += 1
        return len(text) // 4 + 1


def messages(*texts):
    """Visitor and agent in turns, the visitor first."""
    roles = ("visitor", "agent")
    return [Message(n + 1, roles[n % 2], text, AT, 0) for n, text in enumerate(texts)]


def extract(*texts, summary="", cap=400):
    """Return what one fold of these texts returns."""
    return Extractive(Words()).extract(summary, messages(*texts), cap)


def folded(said, cap=400):
    """Fold a conversation to its end, one turn at a time."""
    counter = Words()
    extractive = Extractive(counter)
    summary = Summary()
    for start in range(0, len(said), 2):
        leaving = said[start : start + 2]
        addition = extractive.extract(summary.text, leaving, cap)
        if addition:
            summary = summary.lay(
                addition,
                through=leaving[-1].seq,
                cap_tokens=cap,
                count=counter.count,
                leaving=leaving,
            )
    return summary.text


SPANISH = (
    ("Hola, buenas tardes. Me llamo Nuria Salas y mi pedido es el AB-7731.", "Hola, Nuria."),
    ("La tetera llegó rota y quiero que me la cambien.", "Lo siento mucho. ¿A qué dirección?"),
    ("Calle Mayor 8, Soria. Soy celíaca, ojo con la muestra.", "Anotado."),
    ("¡Gracias!", "Queda programada la recogida para el lunes 7 de abril a las 10:00."),
    ("Perfecto 😊", "¿Algo más?"),
    ("No, eso es todo. Un saludo.", "Que tenga un buen día."),
)
ENGLISH = (
    ("Hi there! My name is Omar Reyes and my order is 90417.", "Hello Omar! How can I help you?"),
    ("The lamp arrived broken. I'd like a refund.", "I'm so sorry. Card or store credit?"),
    ("Card please. By the way, I'm allergic to nuts.", "Noted."),
    ("Cool, thanks!", "Your refund of $58.20 was issued on April 9."),
    ("Great, thank you so much!", "You're welcome! Anything else?"),
    ("No, that's all. Bye!", "Have a nice day!"),
)


@pytest.mark.parametrize(
    ("turns", "values"),
    [
        (
            SPANISH,
            ("Nuria Salas", "AB-7731", "rota", "Calle Mayor 8", "celíaca", "7 de abril", "10:00"),
        ),
        (ENGLISH, ("Omar Reyes", "90417", "refund", "allergic to nuts", "$58.20", "April 9")),
    ],
)
def test_names_numbers_dates_and_decisions_are_kept(turns, values):
    """What can't be guessed back is in the summary, and no greeting is."""
    text = folded(messages(*(said for turn in turns for said in turn)))
    for value in values:
        assert value in text
    for filler in (
        "Hola",
        "Hello",
        "Hi ",
        "racias",
        "hank",
        "saludo",
        "buen día",
        "nice day",
        "lgo más",
    ):
        assert filler not in text


def test_each_line_says_who_said_it_in_the_language_of_the_talk():
    """P20: Spanish in, Spanish out; English in, English out; the speaker stands in front."""
    spanish = folded(messages(*(said for turn in SPANISH for said in turn)))
    english = folded(messages(*(said for turn in ENGLISH for said in turn)))
    assert all(line.startswith(("Visitante: ", "Agente: ")) for line in spanish.split("\n"))
    assert all(line.startswith(("Visitor: ", "Agent: ")) for line in english.split("\n"))


@pytest.mark.parametrize(
    ("visitor", "agent"),
    [
        ("Hola", "Hola, ¿en qué puedo ayudarle?"),
        ("buenas!! que tal?", "Muy bien, gracias. ¿Y usted?"),
        ("Muchas gracias por todo 😊", "De nada, un placer. ¡Que tenga un buen día!"),
        ("jajaja genial", "¡Perfecto!"),
        ("ok dale", "Buenísimo, nos vemos."),
        ("Hi! How are you?", "I'm great, thanks! How about you?"),
        ("Wow, that's awesome!", "Thanks so much! Talk to you soon!"),
        ("Bom dia, tudo bem?", "Tudo bem, obrigado!"),
        ("Bonjour, comment ça va ?", "Très bien, merci !"),
        ("Guten Tag! Wie geht's?", "Danke, sehr gut."),
        ("Bon dia, com va?", "Molt bé, gràcies."),
        ("Ciao, come stai?", "Benissimo, grazie mille."),
        ("你好！谢谢", "不客气"),
        ("👍", "👍"),
        (FAMILY * 3, "…"),
    ],
)
def test_greetings_and_fillers_never_enter(visitor, agent):
    """A turn of small talk adds nothing, which is no failure."""
    assert extract(visitor, agent) == ""


def test_a_greeting_before_what_matters_is_left_out():
    """Of a sentence that greets and tells, what it tells is kept."""
    kept = extract("Buenos días, mi pedido 48213 no ha llegado, gracias.", "Hola.")
    assert kept == "Visitante: mi pedido 48213 no ha llegado."


def test_the_agent_is_kept_only_for_what_the_visitor_lacks():
    """An agent's commitment with a date is kept; its echo of the visitor's words is not."""
    kept = extract(
        "Quiero cambiar el pedido 48213.",
        "Entiendo que el pedido es el 48213. Queda programado el cambio para el lunes 17 de marzo.",
    )
    assert kept == (
        "Visitante: Quiero cambiar el pedido 48213.\n"
        "Agente: Queda programado el cambio para el lunes 17 de marzo."
    )


def test_a_short_answer_is_kept_with_its_question():
    """An answer that means nothing alone carries its question beside it."""
    kept = extract(
        "Quiero una cita con la doctora Vidal.",
        "¿Le va bien el jueves 12?",
        "Sí, el jueves.",
        "Ok.",
    )
    assert "Agente: ¿Le va bien el jueves 12? — Visitante: Sí, el jueves." in kept


def test_an_open_question_waits_in_the_summary_for_its_answer():
    """Over two folds, question and answer lie one above the other."""
    text = folded(messages("Necesito la receta de mi mamá.", "¿Forma de pago?", "Efectivo.", "Ok."))
    assert text.endswith("Agente: ¿Forma de pago?\nVisitante: Efectivo.")


def test_what_the_summary_holds_is_not_returned_again():
    """A statement repeated word for word adds nothing."""
    first = extract("Mi pedido 48213 llegó roto.", "Vaya.")
    assert first
    assert extract("Mi pedido 48213 llegó roto.", "Vaya.", summary=first) == ""


@pytest.mark.parametrize(
    ("visitor", "values"),
    [
        ("che, cambiá el teléfono: ya no es el 11-5550-0001, ahora es el 11-5550-0002", ["0002"]),
        ("soi marta lopez i mi pedio es el AB-4471, no ha yegado tdv", ["marta lopez", "AB-4471"]),
        ("ola q tal. kiero cambiar la dire pq me mude a Sevilla", ["me mude a Sevilla"]),
        ("Ocupo factura, mi RFC es ROCE850101AB2", ["ROCE850101AB2"]),
        ("Hola, em dic Jordi i soc celíac, necessito un menú per dijous", ["Jordi", "celíac"]),
        ("Hi, quiero cancelar my order 5512 please", ["5512"]),
        ("您好，我叫李雪，我的订单48213还没到。", ["李雪", "48213"]),
        ("مرحبا، اسمي ليلى. رقم الطلب ٤٨٢١٣ لم يصل بعد.", ["ليلى", "٤٨٢١٣"]),
        ("こんにちは。注文番号48213がまだ届いていません。", ["48213"]),
        ("मेरा ऑर्डर 48213 अभी तक नहीं आया है।", ["48213"]),
        ("สวัสดีครับ คำสั่งซื้อ 48213 ยังไม่มาถึง", ["48213"]),
    ],
)
def test_every_language_script_and_spelling_keeps_its_values(visitor, values):
    """Regional, misspelt, mixed and unspaced texts keep what they tell, uncut."""
    kept = extract(visitor, "Ok.")
    for value in values:
        assert value in kept


def test_chinese_is_parted_without_spaces_and_keeps_its_language():
    """P20: Chinese in, Chinese out, greetings left out."""
    kept = extract("你好！我对花生过敏。谢谢你！", "好的。")
    assert kept == "访客：我对花生过敏。"


def test_of_pasted_logs_one_telling_line_is_kept():
    """A log gives its most telling line, in backticks, not all of it."""
    log = "\n".join(f"11:0{n}:13 INFO link ok" for n in range(9))
    kept = extract(
        f"Se corta. Te pego el log:\n```\n{log}\n11:09:40 ERROR down (code 0x8007)\n```", "Ok."
    )
    assert "`11:09:40 ERROR down (code 0x8007)`" in kept
    assert "INFO" not in kept


def test_a_very_long_sentence_is_cut_to_its_telling_clause():
    """Of a sentence over 44 words the clauses that tell most are kept, cuts shown."""
    filler = "y entonces fuimos andando por ahí viendo cosas sin más"
    kept = extract(", ".join([filler] * 8) + ", mi pedido 48213 llegó roto, " + filler, "Ok.")
    assert "mi pedido 48213 llegó roto" in kept
    assert "…" in kept
    assert len(kept.split()) < 44


def test_new_lines_within_a_sentence_become_spaces():
    """A line of the summary is one line."""
    assert (
        extract("Mi pedido 48213\nllegó roto.", "Ok.") == "Visitante: Mi pedido 48213 llegó roto."
    )


pieces = st.sampled_from(
    [*"ab 1.?!¿,\n`:-'ñÑ", FAMILY, "你好", "。", "أهلا ", "สวัส", "\u0301", "🇪🇸", "Ana ", "48213 "]
)
texts = st.lists(st.lists(pieces, min_size=1, max_size=80).map("".join), min_size=2, max_size=6)


@given(said=texts, cap=st.integers(1, 200))
def test_the_answer_never_exceeds_its_cap(said, cap):
    """Whatever was said, what a fold returns is at most ``cap_tokens``, and the same each time."""
    counter = Words()
    leaving = messages(*said)
    kept = Extractive(counter).extract("", leaving, cap)
    assert not kept or counter.count(kept) <= cap
    assert kept == Extractive(counter).extract("", leaving, cap)


@given(repeats=st.integers(1, 60), cap=st.integers(1, 60))
def test_emoji_families_are_never_split(repeats, cap):
    """Wherever a text is cut, an emoji family stays whole."""
    kept = extract(f"Mi pedido 48213 {FAMILY * repeats} llegó roto.", "Ok.", cap=cap)
    assert "\u200d" not in kept.replace(FAMILY, "")


@pytest.mark.parametrize(
    "huge",
    [
        "Quiero el pedido 48213 por la tarde. " * 28_000,
        "a" * 1_000_000,
        "。" * 400_000,
        "11:02:13 x\n" * 90_000,
        "a," * 500_000,
        FAMILY * 40_000,
        "\u0301" * 500_000,
    ],
)
def test_a_megabyte_takes_bounded_work(huge):
    """Of a huge text a bounded number of sentences is scored, and few are counted."""
    counter = Words()
    extractive = Extractive(counter)
    leaving = messages(huge, huge)
    assert len(extractive.survey("", leaving)) <= MOST_SENTENCES
    extractive.extract("", leaving, 200)
    assert counter.calls < 60


def test_many_messages_are_compacted_at_once():
    """Compaction takes many turns together and still answers within its cap."""
    said = [
        text for n in range(60) for text in (f"Quiero el artículo {n + 1000} azul.", "Anotado.")
    ]
    counter = Words()
    kept = Extractive(counter).extract("", messages(*said), 200)
    assert kept
    assert counter.count(kept) <= 200


def test_it_is_the_same_in_every_process():
    """Nothing depends on the process: another hash seed gives the same summary."""
    script = (
        "from datetime import UTC, datetime\n"
        "from interturn.actors.extractive import Extractive\n"
        "from interturn.actors.message import Message\n"
        "class C:\n"
        "    name = 'c'\n"
        "    def count(self, text): return len(text)\n"
        "at = datetime(2025, 1, 1, tzinfo=UTC)\n"
        "said = [Message(1, 'visitor', 'Soy Ana, pedido 48213. Vivo en Lugo. Soy celíaca.', at, 0),"
        " Message(2, 'agent', 'Llega el 3 de mayo. Queda anotado el 12.', at, 0)]\n"
        "print(ascii(Extractive(C()).extract('', said, 400)))\n"
    )
    paths = os.pathsep.join(filter(None, sys.path))
    answers = {
        subprocess.run(  # noqa: S603 - our own interpreter and script
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(answers) == 1


@pytest.mark.skipif(not GOLD.exists(), reason="the labelled Spanish conversations are not here")
def test_labelled_values_survive_in_real_conversations():
    """Every value that a summary must keep of the labelled customers is in their summary."""
    customers = json.loads(GOLD.read_text(encoding="utf-8"))
    for customer in customers:
        said = []
        for session in customer["sessions"]:
            texts = [turn["content"] for turn in session["turns"]]
            said += [*texts, "De nada."] if len(texts) % 2 else texts
        text = folded(messages(*said))
        for value in customer["must_keep_in_summary"]:
            assert value in text
