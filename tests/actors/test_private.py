from __future__ import annotations

import pytest

from interturn.actors.private import MASK, is_private, masked


@pytest.mark.parametrize(
    "text",
    [
        "mi tarjeta es 4111 1111 1111 1111",
        "card 5555555555554444 please",
        "amex 3782-822463-10005",
        "mi contraseña es Tigre-2020",
        "my password: hunter22",
        "la clave es luna99",
        "el PIN es 4821",
        "482913 es el código de verificación",
        "your verification code is 481 922",
        "mi DNI es 12345678Z",
        "12.345.678-Z",
        "NIE X1234567L",
        "dni 30.123.456",
        "my SSN is 123-45-6789",
        "CPF 529.982.247-25",
        "cuil 20-12345678-6",
        "RUT 12.345.678-5",
        "CURP GOMC850101HDFRRL09",
        "RFC VECJ880326XK4",
        "codice fiscale RSSMRA85T10A562S",
        "passport number AB1234567",
        "transferid a ES91 2100 0418 4502 0005 1332",
        "my bank account 12345678901",
        "usa la clave sk-abcdefghijklmnopqrstuv",
        "El código que me ha llegado por SMS es 482913",
        "Me ha llegado el código 839201",
        "el codigo q me llego: 99231",
        "me ha llegado 739201 al móvil",
        "me llegó al móvil el 739201",
        "G-482913",
        "Me pone 4471 en el mensaje del banco",
        "en el sms dice 4471",
        "The code I got by text is 482913",
        "it says 482913 in the text message",
        "O código que recebi é 482913",
        "Le code que j'ai reçu est 482913",
        "mi visa es la 4111.1111.1111.1111",
        "mi tarjeta: 4111/1111/1111/1111",
        "mi tarjeta es cuatro uno uno uno, uno uno uno uno, uno uno uno uno",
        "el pin es cuatro siete ocho dos",
        "la pass es Perro$99, el user lucia",
        "mi usuario es lucia y entro con Perro$99",
        "mi pasword es tormenta5",
        "contraseña gatito2020",
        "Mi palabra de seguridad es berenjena",
    ],
)
def test_what_is_never_remembered_is_masked(text):
    """Cards, passwords, one-time codes, papers and accounts are never remembered."""
    assert MASK in masked(text)
    assert is_private(text)
    assert not is_private(masked(text).replace(MASK, ""))


@pytest.mark.parametrize(
    "text",
    [
        "pedido 48213",
        "pedido 4111111111111112",
        "order 123-456-7890",
        "teléfono 11-5550-0002",
        "llámame al +54 9 11 5550 0002",
        "+34 612 345 678",
        "Cliente 7710-22",
        "mi clave de cliente es 7710",
        "código 0x8007 en el módem",
        "código postal 28013",
        "mi código de cliente es 7710",
        "el código de error es 4012",
        "area code 415",
        "el código del producto es 48213",
        "me llegó el pedido 48213 sin un mensaje",
        "me mandaron un sms de mi pedido 48213",
        "recibí 1500 puntos, gracias",
        "mi móvil es 612345678, mándame un mensaje",
        "tengo dos tarjetas y tres hijos",
        "entro con mi hermana a las 10",
        "referencia 12345678A",
        "el 12/03/2025 a las 17:00",
        "olvidé mi contraseña",
        "¿cuál es mi PIN?",
        "tengo 1234 puntos",
        "IMEI 860000000000000",
        "calle Encina 14, 3.º B",
        "iPhone 12 256GB",
    ],
)
def test_what_only_looks_alike_passes(text):
    """An order number, a phone and a date are not a card, a paper or a code."""
    assert masked(text) == text


def test_a_bare_number_is_a_code_if_a_code_was_asked_for():
    """The question tells that the number which answers it is a secret."""
    assert masked("482913", "¿Me dice el código de verificación?") == MASK
    assert masked("482913", "¿Qué código le llegó?") == MASK
    assert masked("482913", "¿Me dice el número de pedido?") == "482913"
    assert masked("28013", "¿Y el código postal?") == "28013"
    assert masked("el 14", "El código 0x8007 es la fibra. ¿Qué día le va?") == "el 14"


def test_masking_keeps_the_rest_word_for_word():
    """Only the secret goes; accents and emoji around it stay."""
    text = "Ñandú 👍 la contraseña es Ábrete9, ¿vale?"
    assert masked(text) == f"Ñandú 👍 la contraseña es {MASK}, ¿vale?"
