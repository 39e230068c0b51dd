// Names what the console's page takes from its libraries; `make vendor` bundles this and nothing else.

export { Virtualizer, elementScroll, measureElement, observeElementOffset, observeElementRect } from "@tanstack/virtual-core";
export {
  ArrowLeftRight, CircleAlert, CircleCheck, CircleX, Gauge, LayoutDashboard, Layers, Menu, RefreshCw, Server, ShieldCheck, Shuffle, Stethoscope,
  TriangleAlert, User, Users,
} from "lucide";
export { h, render } from "preact";
export { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";
export { default as htm } from "htm";
export { default as uPlot } from "uplot";
