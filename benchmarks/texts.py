"""Made-up talk for benchmarks: a visitor's 200 characters and an agent's 600, turn by turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

INSTRUCTIONS: Final = (
    "Eres el agente de una tienda de bicicletas. Responde con brevedad y cortesía."
)

_SAID: Final = (
    "Hola, quería saber si el pedido {n} sale el martes, porque el jueves me voy de viaje.",
    "Por la mañana no suele haber nadie en casa, así que mejor por la tarde, si se puede.",
    "¿Y el segundo modelo, cuánto cuesta si lo pido con el sillín ancho?",
    "La otra vez el mensajero llamó al timbre y se fue sin esperar.",
    "Prefiero pagar con transferencia, si no os importa.",
    "Mi hija cumple ocho en mayo y quiere una bicicleta con cesta, a poder ser verde.",
    "No hace falta que llaméis, con un mensaje me basta, gracias.",
    "La talla que me disteis me queda un poco grande, la verdad.",
    "Perfecto, entonces quedamos así y ya me diréis.",
    "¿Me podéis mandar la factura {n} por correo? No la encuentro por ningún lado.",
    "Vale, lo hablo con mi marido y os digo algo esta semana.",
    "¿Las luces vienen puestas o hay que comprarlas aparte?",
    "El freno de atrás hace un ruido raro desde el domingo.",
    "Muchas gracias, habéis sido muy amables.",
    "¿A qué hora cerráis los sábados? Es que salgo tarde de trabajar.",
)
_REPLIED: Final = (
    "Sale el martes del almacén y le llega el miércoles por la tarde, como muy tarde.",
    "El segundo modelo cuesta {n} euros con el sillín ancho, y las luces van incluidas.",
    "He anotado que prefiere un mensaje; no le llamará nadie por teléfono.",
    "Le apartamos la talla pequeña en la tienda del centro hasta el sábado por la tarde.",
    "Si vuelve a pasar con el mensajero, avísenos y lo reclamamos nosotros.",
    "La bicicleta verde con cesta tarda unas dos semanas en llegar a la tienda.",
    "Para el ruido del freno lo mejor es que la traiga y la miramos sin compromiso.",
    "Le acabo de mandar la factura {n} al correo que tenemos en su ficha.",
    "Los sábados cerramos a las dos, pero puede recogerla cualquier tarde entre semana.",
    "No se preocupe, se puede cambiar de talla sin ningún coste durante un mes.",
    "Cualquier otra cosa que necesite, aquí estamos para ayudarle.",
    "Dígame si le viene bien y lo dejo todo preparado.",
)


def said(start: int = 0) -> Iterator[str]:
    """Yield what a visitor says, turn by turn."""
    return _cut(_SAID, 200, start)


def replied(start: int = 0) -> Iterator[str]:
    """Yield what an agent replies, turn by turn."""
    return _cut(_REPLIED, 600, start)


def _cut(sentences: tuple[str, ...], length: int, start: int) -> Iterator[str]:
    for number in itertools.count(start):
        parts: list[str] = []
        place = number
        while sum(map(len, parts)) + len(parts) < length:
            parts.append(sentences[place % len(sentences)].format(n=1000 + number * 7 + place % 7))
            place += 1
        yield " ".join(parts)[:length]
