"""The child that reads one file: its bytes on standard input, passages or a sentence on standard output.

python -I -m parley.knowledge.parsing pdf '{"chunk_size": 256}' < file > msgpack
"""

import os
import sys
from collections.abc import Callable, Mapping

import msgspec

from parley.knowledge.model import MOST_FILE_BYTES, Chunking, FileType
from parley.knowledge.parsing.confine import confine
from parley.knowledge.parsing.cut import Cutter
from parley.knowledge.parsing.draft import Draft, Unreadable
from parley.knowledge.parsing.office import read_doc, read_docx, read_pptx, read_xlsx
from parley.knowledge.parsing.pdf import read_pdf
from parley.knowledge.parsing.plain import read_csv, read_json, read_text
from parley.knowledge.parsing.verdict import Verdict
from parley.knowledge.parsing.web import read_html

READERS: Mapping[FileType, Callable[[bytes, Draft], None]] = {
    "pdf": read_pdf,
    "docx": read_docx,
    "doc": read_doc,
    "txt": read_text,
    "md": read_text,
    "html": read_html,
    "csv": read_csv,
    "json": read_json,
    "xlsx": read_xlsx,
    "pptx": read_pptx,
}
OUT_OF_MEMORY = "The file needs more memory to read than one file may have. Split it into smaller files."
TOO_DEEP = "The file is nested too deeply to be read. Flatten it and try again."
DAMAGED = "The file is damaged and cannot be read. Save it again and try again."


def read(file_type: FileType, chunking: Chunking) -> Verdict:
    """Read what is on standard input; whatever goes wrong is a sentence for a person."""
    try:
        data = sys.stdin.buffer.read(MOST_FILE_BYTES + 1)
        if not data.strip():
            return Verdict(fault="The file is empty.")
        draft = Draft()
        READERS[file_type](data, draft)
        return Verdict(pieces=Cutter(chunking).pieces(draft))
    except Unreadable as refused:
        return Verdict(fault=str(refused))
    except MemoryError:
        return Verdict(fault=OUT_OF_MEMORY)
    except RecursionError:
        return Verdict(fault=TOO_DEEP)
    except Exception as error:  # a parser's fault about a hostile file is that file's, whatever its class
        return Verdict(fault=DAMAGED, reason=f"{type(error).__name__}: {error}"[:300])


if __name__ == "__main__":
    kind = msgspec.convert(sys.argv[1], FileType)
    how = msgspec.json.decode(sys.argv[2], type=Chunking)
    confine(os.fstat(sys.stdin.fileno()).st_size)
    sys.stdout.buffer.write(msgspec.msgpack.encode(read(kind, how)))
    sys.stdout.buffer.flush()
