// What the page uses of the vendored libraries, for the type checker alone. Written by hand.
export function h(type: any, props: any, ...children: any[]): any;
export const Fragment: any;
export function createContext<T>(value: T): any;
export function render(tree: any, parent: Element): void;
export function html(strings: TemplateStringsArray, ...values: any[]): any;
export function useState<T>(initial: T | (() => T)): [T, (value: T | ((old: T) => T)) => void];
export function useEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useRef<T>(initial: T): { current: T };
export function useMemo<T>(make: () => T, inputs: readonly unknown[]): T;
export function useCallback<T>(callback: T, inputs: readonly unknown[]): T;
export interface Signal<T> { value: T; peek(): T; subscribe(listener: (value: T) => void): () => void; }
export function signal<T>(value: T): Signal<T>;
export function computed<T>(make: () => T): Signal<T>;
export function effect(run: () => void | (() => void)): () => void;
export function batch<T>(run: () => T): T;
export function untracked<T>(run: () => T): T;
type Change = { value: string; added?: boolean; removed?: boolean; count?: number };
export function diffLines(left: string, right: string): Change[];
export function diffLines(left: string, right: string, options: { timeout: number }): Change[] | undefined;
export const uPlot: any;
