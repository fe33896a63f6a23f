"""All that the command line says to people, in Spanish and in English.

One table a language, with the same keys and the same placeholders; a test holds
that. ``help.*`` are the words of ``--help``, ``error.*`` those of refusals,
named for the error's class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LANGUAGES: Final = ("es", "en")


class Texts:
    """One language's words: ``texts("key", name=value)`` is the sentence.

    Args:
        language: ``"es"`` or ``"en"``.
    """

    def __init__(self, language: str) -> None:
        self.language = language
        self._table = TABLES[language]

    def __call__(self, key: str, /, **values: object) -> str:
        """Return the sentence with its values filled in."""
        return self._table[key].format(**values)

    def __contains__(self, key: str) -> bool:
        """Tell whether there is such a sentence."""
        return key in self._table


def language_of(environ: Mapping[str, str]) -> str:
    """Return the language that the locale asks for; English where it asks for neither."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if locale := environ.get(name):
            return "es" if locale.lower().startswith("es") else "en"
    return "en"


SPANISH: Final[dict[str, str]] = {
    # Help
    "help.interturn": "Donde vive una conversación entre turno y turno.",
    "help.lang": "Idioma de la salida: es o en. Si no se indica, el del sistema.",
    "help.version": "Muestra la versión y termina.",
    "help.help": "Muestra esta ayuda y termina.",
    "help.usage": "Uso: ",
    "help.options": "Opciones:",
    "help.arguments": "Argumentos:",
    "help.commands": "Órdenes:",
    "help.default": "por defecto:",
    "help.envvar": "variable:",
    "help.required": "obligatorio",
    "help.demo": "Una conversación de muestra, con las capas según se mueven. Sin red ni claves.",
    "help.chat": "Conversar en la terminal con un agente sin modelo que solo recuerda.",
    "help.replay": (
        "Pasa conversaciones reales por una base de datos, turno a turno. Lee LoCoMo, SGD, "
        "LongMemEval y mensajes al estilo de OpenAI, en JSON o JSON por líneas."
    ),
    "help.show": "Las capas de una sesión y sus últimos mensajes, o lo que se sabe de un cliente.",
    "help.export": "La conversación tal cual: quién, cuándo y qué.",
    "help.forget": "Olvida a un cliente: destruye su clave, sus sesiones y lo que se sabe de él.",
    "help.doctor": "Comprueba que todo se descifra y que nada falta ni sobra.",
    "help.keys": "Las claves maestras.",
    "help.keys_new": "Crea un archivo de claves o añade una clave nueva al que haya.",
    "help.keys_list": "Los identificadores de las claves; nunca las claves.",
    "help.db": "La base de datos.",
    "help.db_replay": "La base de datos. Si no se indica, una temporal que se borra al terminar.",
    "help.key": "El archivo de claves. Si no se indica, memory.key junto a la base de datos.",
    "help.keys_path": "El archivo de claves.",
    "help.settings": "Ajustes, en un archivo TOML.",
    "help.json": "Escribe JSON, para programas.",
    "help.session": "La sesión.",
    "help.customer": "El cliente.",
    "help.customer_show": "El cliente: sus hechos, su perfil y sus sesiones.",
    "help.yes": "Sin preguntar.",
    "help.customer_export": "Todas las sesiones de este cliente.",
    "help.instructions": "Instrucciones para el agente, que van en cada petición.",
    "help.budget": "Tokens que puede tener una petición, como mucho.",
    "help.pace": "Segundos entre turno y turno, solo en una terminal.",
    "help.files": "Archivos con conversaciones, también comprimidos con gzip.",
    "help.prefix": "Se antepone al nombre de cada sesión.",
    "help.limit": "Cuántas conversaciones, como mucho.",
    "help.verbose": "Una línea en la salida de errores por cada turno que ya está en disco.",
    "help.tail": "Cuántos mensajes del final se muestran.",
    "help.format": "jsonl, md o html.",
    "help.output": "El archivo donde escribir. Si no se indica, la salida.",
    # People and layers
    "visitor": "visitante",
    "agent": "agente",
    "layer.summary": "Resumen",
    "layer.surplus": "Excedente",
    "layer.window": "Ventana",
    "layer.cursor": "Cursor",
    "layer.summary_note": "lo que ya salió de la ventana, hasta el mensaje {cursor}",
    "layer.summary_none": "nada ha salido aún de la ventana",
    "layer.surplus_note": "a la espera de plegarse: {count}",
    "layer.surplus_none": "nada espera",
    "layer.window_note": "lo más reciente, palabra por palabra: {count}",
    "layer.window_none": "vacía",
    "layer.cursor_note": "plegado hasta el mensaje {cursor}",
    "layer.moment": (
        "turno {turn}: ventana {window}, excedente {surplus}, cursor {cursor}, "
        "petición de {tokens} tokens"
    ),
    # What is known of a customer
    "facts.profile": "Perfil",
    "facts.no_profile": "todavía no hay perfil",
    "facts.title": "Hechos",
    "facts.none": "todavía no se sabe nada",
    "facts.more": "y {count} más",
    "facts.slot": "Tema",
    "facts.fact": "Hecho",
    "facts.when": "Fechas",
    "facts.times": "Veces",
    "facts.session": "Sesión",
    "facts.sessions": "Sesiones",
    "facts.was": "antes: {was}",
    "facts.seen": "desde {since}, última vez {last}, veces: {count}, sesión {source}",
    "facts.told": "de la aplicación",
    # What facts are about
    "slot.name": "nombre",
    "slot.language": "idioma",
    "slot.form-of-address": "trato",
    "slot.allergy": "alergia",
    "slot.condition": "salud",
    "slot.diet": "dieta",
    "slot.nickname": "apodo",
    "slot.contact": "contacto",
    "slot.home": "domicilio",
    "slot.phone": "teléfono",
    "slot.job": "trabajo",
    "slot.relative": "familia",
    "slot.children": "hijos",
    "slot.pet": "mascota",
    "slot.schedule": "horario",
    "slot.pickup": "recogida",
    "slot.payment": "pago",
    "slot.customer-number": "n.º de cliente",
    "slot.plan": "plan",
    "slot.device": "dispositivo",
    "slot.vehicle": "vehículo",
    "slot.medicine": "medicación",
    "slot.speaks": "habla",
    "slot.order": "pedido",
    "slot.note": "nota",
    # demo
    "demo.title": "Una conversación de {turns} turnos en una base de datos temporal",
    "demo.remembered": "Lo que queda para la próxima sesión con este cliente:",
    "demo.next": "En otra sesión, a la pregunta «{question}» acompañará: {fact}",
    "demo.request": (
        "La última petición llevaba {tokens} tokens; la conversación entera son {whole}."
    ),
    "demo.sealed": (
        "En disco, {bytes} bytes: todo está sellado. De los {texts} textos no aparece ni uno "
        "en los archivos, y la base temporal ya se ha borrado."
    ),
    "demo.readable": "Hay {count} textos legibles en los archivos: esto no debería pasar.",
    # chat
    "chat.welcome": (
        "Base de datos {db}, sesión {session}, {count} mensajes. "
        "/layers muestra las capas; /facts, lo que sé de ti; /quit sale."
    ),
    "chat.prompt": "tú> ",
    "chat.agent": "agente> ",
    "chat.unknown": "Las órdenes son /layers, /facts y /quit.",
    "chat.echo": (
        "Aquí no hay ningún modelo: yo solo recuerdo. Un modelo habría recibido {tokens} tokens, "
        "con {history} mensajes anteriores palabra por palabra y {summary}."
    ),
    "chat.echo_summary": "un resumen hasta el mensaje {cursor}",
    "chat.echo_no_summary": "sin resumen todavía",
    "chat.bye": "Hasta la próxima: la conversación queda guardada.",
    # replay
    "replay.progress": "Turnos",
    "replay.temporary": "Base de datos temporal: se borra al terminar. Con --db se conserva.",
    "replay.session": "Sesión {session}",
    "replay.remembered": "Lo que se sabe de su cliente:",
    "replay.title": "Lo que ha pasado",
    "replay.sessions": "Sesiones",
    "replay.turns": "Turnos grabados",
    "replay.already": "Turnos que ya estaban",
    "replay.over_budget": "Turnos que no caben en el presupuesto (grabados sin petición)",
    "replay.folds": "Pliegues",
    "replay.largest": "Petición mayor (tokens)",
    "replay.median": "Petición mediana (tokens)",
    "replay.compacting": "Peticiones que compactaron",
    "replay.compacted": "Turnos compactados en una petición, como mucho",
    "replay.facts": "Hechos por cada 100 turnos",
    "replay.bytes": "Bytes en disco por turno",
    "replay.openings": "Fuera: el agente habla primero",
    "replay.last_words": "Fuera: sin respuesta",
    "replay.instructions": "Fuera: instrucciones",
    "replay.tools": "Fuera: herramientas",
    "replay.parts": "Fuera: partes que no son texto",
    "replay.empty": "Fuera: mensajes vacíos",
    "replay.stopped": (
        "Interrumpido con {turns} turnos en disco. La misma orden continúa donde se quedó."
    ),
    "replay.stopped_temporary": "Interrumpido; la base de datos temporal se ha borrado.",
    # show and export
    "show.tail": "Últimos mensajes: {shown} de {count}",
    "export.title": "Conversación {session}",
    "export.session": "Sesión {session}",
    # forget
    "forget.question": (
        "Se van a destruir para siempre las conversaciones y los hechos de «{customer}» "
        "(sesiones: {sessions}, hechos: {facts}). ¿Seguir? [s/N]"
    ),
    "forget.yes": "s si sí",
    "forget.kept": "No se ha tocado nada.",
    "forget.nothing": "No había nada de este cliente.",
    "forget.title": "Destruido el {at}",
    "forget.sessions": "Sesiones",
    "forget.messages": "Mensajes",
    "forget.facts": "Hechos",
    "forget.copies": (
        "Las copias hechas antes no cambian: quien tenga una, con sus claves, aún puede leerla."
    ),
    # doctor
    "doctor.customers": "Clientes",
    "doctor.sessions": "Sesiones",
    "doctor.messages": "Mensajes",
    "doctor.facts": "Hechos",
    "doctor.unanswered": "Turnos sin respuesta",
    "doctor.looked_for": "Textos e identificadores buscados en los archivos",
    "doctor.clean": "Todo en orden.",
    "doctor.finding": "{kind}: {where}",
    "doctor.findings": "hallazgos: {count}",
    "finding.tampered": "bytes sellados cambiados, movidos o cortados",
    "finding.wrong-key": "la clave no lo abre",
    "finding.gap": "faltan mensajes",
    "finding.pair": "un turno no son dos mensajes",
    "finding.cursor": "el cursor no concuerda",
    "finding.mark": "hay hechos de más mensajes de los que hay",
    "finding.database": "la base de datos está dañada",
    "finding.plaintext": "hay texto sin cifrar",
    # keys
    "keys.made": "Archivo de claves {path} creado; la clave activa es {key}.",
    "keys.added": "Llave {key} añadida a {path}; ahora es la activa.",
    "keys.active": "activa",
    # Refusals
    "refusal": "interturn: {message}",
    "usage": "interturn: {message} (véase --help)",
    "usage.no_option": "no existe la opción {option}",
    "usage.no_command": "no existe esa orden, o falta",
    "usage.missing": "falta {name}",
    "usage.bad_value": "valor no válido para {name}",
    "usage.other": "no se entiende la orden",
    "usage.session_or_customer": "hace falta --session o --customer, y solo uno de los dos",
    "stopped": "interrumpido",
    "missing_packages": 'interturn: faltan paquetes; se instalan con: pip install "interturn[cli]"',
    "error.InterturnError": "no se puede seguir: {message}",
    "error.BudgetExceeded": (
        "la petición más pequeña necesita {needed} tokens y el presupuesto es de {budget}"
    ),
    "error.InvalidText": "texto no válido ({field}): {reason}",
    "error.InvalidId": "identificador no válido ({field}): {reason}",
    "error.DeliveryConflict": (
        "esa sesión ya tiene estos turnos con otras palabras; "
        "con --session-prefix va a sesiones nuevas"
    ),
    "error.CustomerMismatch": "la sesión es de otro cliente",
    "error.StoreOwned": "la base de datos está en uso por {owner}",
    "error.Fenced": "otro proceso se ha hecho cargo de la base de datos",
    "error.WrongKey": "la clave no abre esta base de datos (hace falta la clave {key_id})",
    "error.Tampered": "hay bytes sellados cambiados, movidos o cortados: {table} {where}",
    "error.StoreFailed": "el almacén ha fallado: {cause}",
    "error.SchemaTooNew": (
        "la base de datos es de una versión más nueva (esquema {found}; aquí se conoce el {known})"
    ),
    "error.InvalidSettings": "ajuste {name} fuera de sus límites: {bound}",
    "error.Quarantined": "una sesión falla una y otra vez; se reintenta en {retry_s:.0f} s",
    "error.UnknownSession": "no hay ninguna sesión con ese nombre",
    "error.UnknownCustomer": "no hay ningún cliente con ese nombre",
    "error.NotConfirmed": "olvidar no se puede deshacer; sin una terminal hace falta --yes",
    "error.NoDatabase": "no hay ninguna base de datos en {path}",
    "error.NoKey": "no hay ningún archivo de claves en {path}",
    "error.ReplayDiffers": (
        "la sesión ya tiene otra conversación; con --session-prefix va a una sesión nueva"
    ),
    "error.TranscriptError": "{place}: {reason}",
    "error.line": "{file}, línea {line}",
    "error.at": "{reason}, en {where}",
    "error.OSError": "{path}: {reason}",
    "error.ValueError": "valor no válido: {message}",
    "os.ENOENT": "no existe",
    "os.EEXIST": "ya existe",
    "os.EACCES": "sin permiso",
    "os.EPERM": "sin permiso",
    "os.EISDIR": "es una carpeta",
    "os.ENOTDIR": "no es una carpeta",
    "os.ENOSPC": "no queda espacio en el disco",
    "os.EROFS": "el disco es de solo lectura",
    "os.ENAMETOOLONG": "el nombre es demasiado largo",
    "transcript.not_a_file": "no es un archivo corriente, y un replay tiene que poder releerlo",
    "transcript.empty": "está vacío",
    "transcript.not_json": "no es JSON",
    "transcript.not_utf8": "no es UTF-8",
    "transcript.not_gzip": "el gzip está dañado o incompleto",
    "transcript.surrogate": "hay medio carácter suelto (un subrogado de UTF-16)",
    "transcript.too_deep": "el JSON está anidado a demasiada profundidad",
    "transcript.too_long": "es demasiado largo para leerlo de una vez",
    "transcript.unknown_shape": "no es ninguna forma de conversación conocida",
    "transcript.wrong_shape": "falta algo o no es del tipo esperado",
    "transcript.unknown_role": "hay un papel desconocido",
}

ENGLISH: Final[dict[str, str]] = {
    # Help
    "help.interturn": "Where a conversation lives between turns.",
    "help.lang": "Language of the output: es or en. By default, the system's.",
    "help.version": "Show the version and exit.",
    "help.help": "Show this help and exit.",
    "help.usage": "Usage: ",
    "help.options": "Options:",
    "help.arguments": "Arguments:",
    "help.commands": "Commands:",
    "help.default": "default:",
    "help.envvar": "env var:",
    "help.required": "required",
    "help.demo": "A sample conversation, with the layers as they move. No network, no keys.",
    "help.chat": "Talk in the terminal with an agent that has no model and only remembers.",
    "help.replay": (
        "Play real conversations through a database, turn by turn. Reads LoCoMo, SGD, "
        "LongMemEval and OpenAI-style messages, as JSON or JSON lines."
    ),
    "help.show": "A session's layers and its last messages, or what is known of a customer.",
    "help.export": "The conversation as it was: who, when and what.",
    "help.forget": "Forget a customer: destroy their key, their sessions and all that is known.",
    "help.doctor": "Check that everything opens and that nothing is missing or astray.",
    "help.keys": "The master keys.",
    "help.keys_new": "Make a key file, or add a new key to the one that is there.",
    "help.keys_list": "The keys' ids; never the keys.",
    "help.db": "The database.",
    "help.db_replay": "The database. Without it, a temporary one that is removed at the end.",
    "help.key": "The key file. Without it, memory.key beside the database.",
    "help.keys_path": "The key file.",
    "help.settings": "Settings, in a TOML file.",
    "help.json": "Write JSON, for programs.",
    "help.session": "The session.",
    "help.customer": "The customer.",
    "help.customer_show": "The customer: their facts, their profile and their sessions.",
    "help.yes": "Without asking.",
    "help.customer_export": "All sessions of this customer.",
    "help.instructions": "Instructions for the agent, sent with every request.",
    "help.budget": "Tokens that a request may have at most.",
    "help.pace": "Seconds between turns, on a terminal only.",
    "help.files": "Files with conversations, gzipped or not.",
    "help.prefix": "Put before the name of each session.",
    "help.limit": "How many conversations at most.",
    "help.verbose": "A line on standard error for each turn that is on disk.",
    "help.tail": "How many of the last messages to show.",
    "help.format": "jsonl, md or html.",
    "help.output": "The file to write. Without it, standard output.",
    # People and layers
    "visitor": "visitor",
    "agent": "agent",
    "layer.summary": "Summary",
    "layer.surplus": "Surplus",
    "layer.window": "Window",
    "layer.cursor": "Cursor",
    "layer.summary_note": "what has left the window, up to message {cursor}",
    "layer.summary_none": "nothing has left the window yet",
    "layer.surplus_note": "waiting to be folded: {count}",
    "layer.surplus_none": "nothing waits",
    "layer.window_note": "the newest, word for word: {count}",
    "layer.window_none": "empty",
    "layer.cursor_note": "folded up to message {cursor}",
    "layer.moment": (
        "turn {turn}: window {window}, surplus {surplus}, cursor {cursor}, "
        "a request of {tokens} tokens"
    ),
    # What is known of a customer
    "facts.profile": "Profile",
    "facts.no_profile": "no profile yet",
    "facts.title": "Facts",
    "facts.none": "nothing is known yet",
    "facts.more": "and {count} more",
    "facts.slot": "About",
    "facts.fact": "Fact",
    "facts.when": "Dates",
    "facts.times": "Times",
    "facts.session": "Session",
    "facts.sessions": "Sessions",
    "facts.was": "was: {was}",
    "facts.seen": "since {since}, last seen {last}, times: {count}, session {source}",
    "facts.told": "from the application",
    # What facts are about
    "slot.name": "name",
    "slot.language": "language",
    "slot.form-of-address": "form of address",
    "slot.allergy": "allergy",
    "slot.condition": "health",
    "slot.diet": "diet",
    "slot.nickname": "nickname",
    "slot.contact": "contact",
    "slot.home": "home",
    "slot.phone": "phone",
    "slot.job": "job",
    "slot.relative": "family",
    "slot.children": "children",
    "slot.pet": "pet",
    "slot.schedule": "schedule",
    "slot.pickup": "pick-up",
    "slot.payment": "payment",
    "slot.customer-number": "customer number",
    "slot.plan": "plan",
    "slot.device": "device",
    "slot.vehicle": "vehicle",
    "slot.medicine": "medicine",
    "slot.speaks": "speaks",
    "slot.order": "order",
    "slot.note": "note",
    # demo
    "demo.title": "A conversation of {turns} turns in a temporary database",
    "demo.remembered": "What stays for the next session with this customer:",
    "demo.next": "In another session, the question «{question}» will come with: {fact}",
    "demo.request": "The last request had {tokens} tokens; the whole conversation has {whole}.",
    "demo.sealed": (
        "On disk, {bytes} bytes: all of it is sealed. Not one of the {texts} texts can be found "
        "in the files, and the temporary database is gone."
    ),
    "demo.readable": "There are {count} readable texts in the files: this should never happen.",
    # chat
    "chat.welcome": (
        "Database {db}, session {session}, {count} messages. "
        "/layers shows the layers, /facts what I know of you, /quit leaves."
    ),
    "chat.prompt": "you> ",
    "chat.agent": "agent> ",
    "chat.unknown": "The commands are /layers, /facts and /quit.",
    "chat.echo": (
        "There is no model here: I only remember. A model would have been sent {tokens} tokens, "
        "with {history} earlier messages word for word and {summary}."
    ),
    "chat.echo_summary": "a summary up to message {cursor}",
    "chat.echo_no_summary": "no summary yet",
    "chat.bye": "Until next time: the conversation is kept.",
    # replay
    "replay.progress": "Turns",
    "replay.temporary": "Temporary database: removed at the end. With --db it is kept.",
    "replay.session": "Session {session}",
    "replay.remembered": "What is known of its customer:",
    "replay.title": "What happened",
    "replay.sessions": "Sessions",
    "replay.turns": "Turns recorded",
    "replay.already": "Turns that were there already",
    "replay.over_budget": "Turns over the budget (recorded without a request)",
    "replay.folds": "Folds",
    "replay.largest": "Largest request (tokens)",
    "replay.median": "Median request (tokens)",
    "replay.compacting": "Requests that compacted",
    "replay.compacted": "Turns compacted in one request, at most",
    "replay.facts": "Facts per 100 turns",
    "replay.bytes": "Bytes on disk per turn",
    "replay.openings": "Left out: the agent speaks first",
    "replay.last_words": "Left out: no reply",
    "replay.instructions": "Left out: instructions",
    "replay.tools": "Left out: tools",
    "replay.parts": "Left out: parts that are no text",
    "replay.empty": "Left out: empty messages",
    "replay.stopped": (
        "Stopped with {turns} turns on disk. The same command continues where it stopped."
    ),
    "replay.stopped_temporary": "Stopped; the temporary database is gone.",
    # show and export
    "show.tail": "Last messages: {shown} of {count}",
    "export.title": "Conversation {session}",
    "export.session": "Session {session}",
    # forget
    "forget.question": (
        "The conversations and facts of “{customer}” will be destroyed for good "
        "(sessions: {sessions}, facts: {facts}). Go on? [y/N]"
    ),
    "forget.yes": "y yes",
    "forget.kept": "Nothing was touched.",
    "forget.nothing": "There was nothing of this customer.",
    "forget.title": "Destroyed on {at}",
    "forget.sessions": "Sessions",
    "forget.messages": "Messages",
    "forget.facts": "Facts",
    "forget.copies": (
        "Copies made before don't change: whoever has one, with its keys, can still read it."
    ),
    # doctor
    "doctor.customers": "Customers",
    "doctor.sessions": "Sessions",
    "doctor.messages": "Messages",
    "doctor.facts": "Facts",
    "doctor.unanswered": "Turns without an answer",
    "doctor.looked_for": "Texts and ids looked for in the files",
    "doctor.clean": "All in order.",
    "doctor.finding": "{kind}: {where}",
    "doctor.findings": "findings: {count}",
    "finding.tampered": "sealed bytes were changed, moved or cut",
    "finding.wrong-key": "the key doesn't open it",
    "finding.gap": "messages are missing",
    "finding.pair": "a turn is not two messages",
    "finding.cursor": "the cursor doesn't agree",
    "finding.mark": "facts were learnt from more messages than there are",
    "finding.database": "the database is damaged",
    "finding.plaintext": "there is unencrypted text",
    # keys
    "keys.made": "Key file {path} made; the active key is {key}.",
    "keys.added": "Key {key} added to {path}; it is the active one now.",
    "keys.active": "active",
    # Refusals
    "refusal": "interturn: {message}",
    "usage": "interturn: {message} (see --help)",
    "usage.no_option": "there is no option {option}",
    "usage.no_command": "there is no such command, or none was given",
    "usage.missing": "{name} is missing",
    "usage.bad_value": "not a valid value for {name}",
    "usage.other": "the command line makes no sense",
    "usage.session_or_customer": "it needs --session or --customer, and only one of the two",
    "stopped": "stopped",
    "missing_packages": 'interturn: packages are missing; pip install "interturn[cli]" adds them',
    "error.InterturnError": "can't go on: {message}",
    "error.BudgetExceeded": (
        "the smallest request needs {needed} tokens and the budget is {budget}"
    ),
    "error.InvalidText": "not a valid text ({field}): {reason}",
    "error.InvalidId": "not a valid id ({field}): {reason}",
    "error.DeliveryConflict": (
        "the session has these turns already, with other words; "
        "--session-prefix puts it into new sessions"
    ),
    "error.CustomerMismatch": "the session belongs to another customer",
    "error.StoreOwned": "the database is in use by {owner}",
    "error.Fenced": "another process has taken the database over",
    "error.WrongKey": "the key doesn't open this database (it needs the key {key_id})",
    "error.Tampered": "sealed bytes were changed, moved or cut: {table} {where}",
    "error.StoreFailed": "the store failed: {cause}",
    "error.SchemaTooNew": (
        "the database is of a newer version (schema {found}; this one knows up to {known})"
    ),
    "error.InvalidSettings": "setting {name} must be {bound}",
    "error.Quarantined": "a session fails again and again; it is tried again in {retry_s:.0f} s",
    "error.UnknownSession": "there is no session of that name",
    "error.UnknownCustomer": "there is no customer of that name",
    "error.NotConfirmed": "forgetting can't be undone; without a terminal it needs --yes",
    "error.NoDatabase": "there is no database at {path}",
    "error.NoKey": "there is no key file at {path}",
    "error.ReplayDiffers": (
        "the session holds another conversation; --session-prefix puts it into a new session"
    ),
    "error.TranscriptError": "{place}: {reason}",
    "error.line": "{file}, line {line}",
    "error.at": "{reason}, at {where}",
    "error.OSError": "{path}: {reason}",
    "error.ValueError": "not a valid value: {message}",
    "os.ENOENT": "does not exist",
    "os.EEXIST": "exists already",
    "os.EACCES": "no permission",
    "os.EPERM": "no permission",
    "os.EISDIR": "is a folder",
    "os.ENOTDIR": "is not a folder",
    "os.ENOSPC": "no space left on the disk",
    "os.EROFS": "the disk is read-only",
    "os.ENAMETOOLONG": "the name is too long",
    "transcript.not_a_file": "not a regular file, and a replay must be able to read it again",
    "transcript.empty": "it is empty",
    "transcript.not_json": "not JSON",
    "transcript.not_utf8": "not UTF-8",
    "transcript.not_gzip": "the gzip is damaged or incomplete",
    "transcript.surrogate": "half a character stands alone (a UTF-16 surrogate)",
    "transcript.too_deep": "the JSON is nested too deep",
    "transcript.too_long": "too long to be read at once",
    "transcript.unknown_shape": "no known shape of a conversation",
    "transcript.wrong_shape": "something is missing or not of its type",
    "transcript.unknown_role": "there is an unknown role",
}

TABLES: Final[dict[str, dict[str, str]]] = {"es": SPANISH, "en": ENGLISH}
