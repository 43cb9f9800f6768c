// SPDX-License-Identifier: Apache-2.0
//
// The fat binary that nvcc made, as a constant: image.cc. RONDO_IMAGE is its path.
  .section .rodata
  .balign 64
  .globl rondo_device_image
  .hidden rondo_device_image
  .type rondo_device_image, %object
rondo_device_image:
  .incbin RONDO_IMAGE
  .size rondo_device_image, . - rondo_device_image
  .section .note.GNU-stack, "", %progbits
