/** What a server says of something that is looked at, in sentences. */
export function Notes({ notes }: { notes: readonly string[] }) {
  return notes.map((note) => (
    <p key={note} className="notice breakable">
      {note}
    </p>
  ));
}
