// Something that tells its listeners when it has changed.
import { useLayoutEffect, useReducer } from "preact/hooks";

export class Observable {
  private readonly listeners = new Set<() => void>();

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  notify(): void {
    for (const listener of this.listeners) listener();
  }
}

/** Renders the component again whenever the observable changes. */
export function useChanges(observable: Observable): void {
  const [, render] = useReducer((count: number) => count + 1, 0);
  // At once: a change between the rendering and a later subscription would be missed.
  useLayoutEffect(() => observable.subscribe(() => render(undefined)), [observable]);
}
