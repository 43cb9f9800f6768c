// SPDX-License-Identifier: Apache-2.0
//
// A libcuda.so.1 that lacks functions of CUDA 12.
extern "C" int cuInit(unsigned) {
  return 0;
}
