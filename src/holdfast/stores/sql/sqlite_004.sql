-- A row is committed by plain statements: the view that did it in one is not needed any more.
DROP VIEW swaps;
