/** Work on a few images at a time, with what is done of it. */

/** Two at a time keep a service busy, and still leave room for others. */
const PLACES = 2;

interface Turn {
  signal: AbortSignal;
  work: () => Promise<void>;
  dropped: () => void;
}

export class Queue {
  total = 0;
  done = 0;
  /** When the first of what waits was added, in milliseconds. */
  private began = 0;
  private taken = 0;
  private waiting: Turn[] = [];

  /** @param changed called whenever a piece of work is added or done. */
  constructor(private readonly changed: () => void) {}

  /** Work when its turn comes, unless the signal says that nobody wants it any more.
   *
   * @param dropped called in its place if it is cancelled first.
   */
  add(signal: AbortSignal, work: () => Promise<void>, dropped: () => void): void {
    if (this.idle) {
      this.total = this.done = 0;
      this.began = performance.now();
    }
    this.total += 1;
    this.waiting.push({ signal, work, dropped });
    this.next();
  }

  get idle(): boolean {
    return this.taken === 0 && this.waiting.length === 0;
  }

  /** Seconds until all is done, by what has been done; null while too little is. */
  get left(): number | null {
    const seconds = (performance.now() - this.began) / 1000;
    return this.done < 2 || seconds < 1 ? null : seconds / this.done * (this.total - this.done);
  }

  /** Drop what has not begun. */
  cancel(): void {
    const turns = this.waiting.splice(0);
    this.total -= turns.length;
    for (const turn of turns) if (!turn.signal.aborted) turn.dropped();
    this.changed();
  }

  private next(): void {
    while (this.taken < PLACES) {
      const turn = this.waiting.shift();
      if (!turn) break;
      if (turn.signal.aborted) {
        this.total -= 1;
        continue;
      }
      this.taken += 1;
      void turn.work().finally(() => {
        this.taken -= 1;
        this.done += 1;
        this.next();
      });
    }
    this.changed();
  }
}
