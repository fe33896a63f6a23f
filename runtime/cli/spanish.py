"""All that the command line says, in Spanish. The keys are those of `english`."""

from typing import Final

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
        "LongMemEval y mensajes al estilo de OpenAI, en JSON o JSONL."
    ),
    "help.import": (
        "Guarda conversaciones ya mantenidas, sin más; lee lo que lee replay y lo "
        "que escribe export."
    ),
    "help.show": "Las capas de una sesión y sus últimos mensajes, o lo que se sabe de un cliente.",
    "help.export": "La conversación tal cual: quién, cuándo y qué.",
    "help.forget": "Olvida a un cliente: destruye su clave, sus sesiones y lo que se sabe de él.",
    "help.doctor": "Comprueba que todo se descifra y que nada falta ni sobra.",
    "help.stats": "Cuánto hay en una base de datos, o qué sesiones.",
    "help.sessions": (
        "Las sesiones, una por línea: de quién son, cuántos mensajes y cuándo fue el último."
    ),
    "help.keys": "Las claves maestras.",
    "help.keys_new": "Crea un archivo de claves o añade una clave nueva al que haya.",
    "help.keys_list": "Los identificadores de las claves; nunca las claves.",
    "help.db": "La base de datos.",
    "help.db_replay": "La base de datos. Si no se indica, una temporal que se borra al terminar.",
    "help.key": "El archivo de claves. Si no se indica, memory.key junto a la base de datos.",
    "help.keys_apart": (
        "El archivo aparte con las claves de los clientes, si no van en la base de datos."
    ),
    "help.keys_path": "El archivo de claves.",
    "help.settings": "Ajustes, en un archivo TOML.",
    "help.json": "Escribe JSON, para programas.",
    "help.session": "La sesión.",
    "help.customer": "El cliente.",
    "help.customer_show": "El cliente: sus hechos, su perfil y sus sesiones.",
    "help.customer_import": "De quién son las conversaciones, si el archivo no lo dice.",
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
    "layer.surplus_note": "a la espera de pasar al resumen: {count}",
    "layer.surplus_none": "nada espera",
    "layer.window_note": "lo más reciente, palabra por palabra: {count}",
    "layer.window_none": "vacía",
    "layer.cursor_note": "resumido hasta el mensaje {cursor}",
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
    "replay.turns": "Turnos guardados",
    "replay.already": "Turnos que ya estaban",
    "replay.over_budget": "Turnos que no caben en el presupuesto (guardados sin petición)",
    "replay.folds": "Ampliaciones del resumen",
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
    # import
    "import.done": (
        "Sesiones: {sessions}. Turnos guardados: {turns}; ya estaban: {already}. "
        "Excluidos: {left_out}."
    ),
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
    "doctor.nothing": (
        "No falla nada, pero tampoco hay nada que comprobar: no se ha encontrado ningún texto."
    ),
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
    # stats
    "stats.customers": "Clientes",
    "stats.sessions": "Sesiones",
    "stats.messages": "Mensajes",
    "stats.turns": "Turnos",
    "stats.facts": "Hechos",
    "stats.summaries": "Resúmenes",
    "stats.bytes": "Bytes en disco",
    "stats.schema": "Versión del esquema",
    "stats.times": "Mensajes desde {oldest} hasta {newest}.",
    "stats.free": "Nadie la tiene abierta para escribir.",
    "stats.owner": "La tiene abierta {owner}.",
    "stats.owner_since": "La tiene abierta {owner} desde {since}.",
    "stats.session": "{session} · {customer} · mensajes: {count} · último: {last}",
    "stats.anonymous": "anónimo",
    # keys
    "keys.made": "Archivo de claves {path} creado; la clave activa es {key}.",
    "keys.added": "Clave {key} añadida a {path}; ahora es la activa.",
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
    "error.InvalidSettings": "el ajuste {name} debe ser {bound}",
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
    # Reasons in errors
    "reason.bytes": "{size} bytes en UTF-8 y el máximo es {bound}",
    "reason.empty": "está vacío",
    "reason.controls": "tiene caracteres de control",
    "reason.surrogates": "tiene subrogados sueltos de UTF-16, que no son texto",
    "reason.zone": "la hora necesita una zona horaria",
    "reason.range": "la hora en UTC se sale del calendario",
    "reason.whole": "un número entero de {unit}",
    "reason.number": "un número de {unit}",
    "reason.between": "entre {low} y {high} {unit}",
    "reason.even": "un número par de mensajes, porque un turno son dos",
    "reason.windows": "como mucho {windows} ventanas de mensajes",
    "reason.durability": "full o normal",
    "reason.truth": "true o false",
    "reason.toml": "un archivo TOML",
    "reason.name": "el nombre de un ajuste",
    "reason.text": "texto",
    "reason.one_of": "uno de {names}",
    "reason.keys_apart": (
        "las claves de los clientes están en un archivo aparte: indíquelo con --keys"
    ),
    "reason.keys_inside": "esta base de datos guarda dentro sus claves: ábrala sin --keys",
    "reason.keys_missing": "falta el archivo con las claves de los clientes, o está vacío",
    "reason.keys_another": "las claves de clientes de ese archivo son de otra base de datos",
    "reason.keys_own": "las claves necesitan un archivo propio, no el de la base de datos",
    "reason.not_ours": "el archivo no es un archivo de interturn",
    "unit.messages": "mensajes",
    "unit.delivery ids": "identificadores de entrega",
    "unit.tokens": "tokens",
    "unit.facts": "hechos",
    "unit.turns": "turnos",
    "unit.bytes": "bytes",
    "unit.actors": "actores",
    "unit.seconds": "segundos",
    "unit.days": "días",
    "os.ENOENT": "no existe",
    "os.EEXIST": "ya existe",
    "os.EACCES": "sin permiso",
    "os.EPERM": "sin permiso",
    "os.EISDIR": "es una carpeta",
    "os.ENOTDIR": "no es una carpeta",
    "os.ENOSPC": "no queda espacio en el disco",
    "os.EROFS": "el disco es de solo lectura",
    "os.ENAMETOOLONG": "el nombre es demasiado largo",
    "transcript.not_a_file": "no es un archivo normal, y hay que poder releerlo",
    "transcript.empty": "está vacío",
    "transcript.not_json": "no es JSON",
    "transcript.not_utf8": "no es UTF-8",
    "transcript.not_gzip": "el gzip está dañado o incompleto",
    "transcript.surrogate": "hay medio carácter suelto (un subrogado de UTF-16)",
    "transcript.too_deep": "el JSON está anidado a demasiada profundidad",
    "transcript.too_long": "es demasiado largo para leerlo de una vez",
    "transcript.unknown_shape": "no tiene ningún formato de conversación conocido",
    "transcript.wrong_shape": "falta algo o no es del tipo esperado",
    "transcript.unknown_role": "hay un rol desconocido",
    "transcript.unpaired": "el mensaje no forma turno con el siguiente",
}
