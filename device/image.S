// SPDX-License-Identifier: Apache-2.0
//
// A fat binary that nvcc made, as a constant. RONDO_IMAGE is its path, RONDO_SYMBOL the name of the
// constant.
  .section .rodata
  .balign 64
  .globl RONDO_SYMBOL
  .hidden RONDO_SYMBOL
  .type RONDO_SYMBOL, %object
RONDO_SYMBOL:
  .incbin RONDO_IMAGE
  .size RONDO_SYMBOL, . - RONDO_SYMBOL
  .section .note.GNU-stack, "", %progbits
