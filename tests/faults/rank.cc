// SPDX-License-Identifier: Apache-2.0
//
// One rank of the fault tests, as a process. It runs all-reduces and checks their results. At one
// of them it does what its mode says.
//   fault_rank MODE OPERATIONS AT COUNT
// Writes "ready ADDRESS" once connected, then one line: "ok", "wrong N", or "error CODE MESSAGE".
#include <rondo/communicator.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace rondo;

struct Job {
  std::string mode;
  int operations = 0;
  int at = 0;  // the operation at which the mode acts
  std::size_t count = 0;
};

std::size_t check(const std::vector<float>& out, int size, int round) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float base = static_cast<float>(i % 64) + static_cast<float>(round % 8);
    const float expected =
        base * static_cast<float>(size) + static_cast<float>(size * (size - 1) / 2);
    wrong += out[i] != expected;
  }
  return wrong;
}

// Makes a call that differs from those of the other ranks.
void call_otherwise(Communicator& communicator, const std::string& mode, std::vector<float>& in,
                    std::vector<float>& out) {
  const Buffer i = buffer_of(std::span(in)), o = buffer_of(std::span(out));
  if (mode == "count") {
    communicator
        .all_reduce({in.data(), in.size() - 1, DType::f32},
                    {out.data(), out.size() - 1, DType::f32}, ReduceOp::sum)
        .wait();
  } else if (mode == "type") {
    communicator
        .all_reduce({in.data(), in.size(), DType::i32}, {out.data(), out.size(), DType::i32},
                    ReduceOp::sum)
        .wait();
  } else if (mode == "op") {
    communicator.all_reduce(i, o, ReduceOp::max).wait();
  } else if (mode == "root") {
    communicator.broadcast(i, o, 1).wait();
  } else if (mode == "operation") {
    communicator.barrier().wait();
  } else if (mode == "abort") {
    communicator.abort(std::make_error_code(std::errc::operation_canceled));
    communicator.barrier().wait();
  }
}

// Sums many bytes in place. Returns how many are wrong.
std::size_t sum_bytes(Communicator& communicator, std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  const auto rank = static_cast<unsigned>(communicator.rank()),
             size = static_cast<unsigned>(communicator.size());
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + rank);
  const Buffer buffer = buffer_of(std::span(bytes));
  communicator.all_reduce(buffer, buffer, ReduceOp::sum).wait();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i)
    wrong += bytes[i] != static_cast<std::uint8_t>(i * 7 * size + size * (size - 1) / 2);
  return wrong;
}

// Every rank sends to the next. Returns how many received values are wrong.
std::size_t pass_on(Communicator& communicator, std::vector<float>& in, std::vector<float>& out,
                    int round) {
  const int rank = communicator.rank(), size = communicator.size(),
            previous = (rank + size - 1) % size;
  const Transfer both[] = {{Transfer::Kind::send, buffer_of(std::span(in)), (rank + 1) % size, 7},
                           {Transfer::Kind::receive, buffer_of(std::span(out)), previous, 7}};
  communicator.batch(both).wait();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < out.size(); ++i)
    wrong += out[i] != static_cast<float>(i % 64) + static_cast<float>(round % 8) +
                           static_cast<float>(previous);
  return wrong;
}

// Rank 0 receives what the others send, whoever comes first. Returns how many messages are wrong.
std::size_t collect(Communicator& communicator, std::vector<float>& values) {
  const int rank = communicator.rank();
  const Buffer buffer = buffer_of(std::span(values));
  if (rank != 0) {
    std::fill(values.begin(), values.end(), static_cast<float>(rank));
    communicator.send(buffer, 0, 9).wait();
    return 0;
  }
  std::size_t wrong = 0;
  for (int i = 1; i < communicator.size(); ++i) {
    Work work = communicator.receive_any(buffer, 9);
    work.wait();
    wrong += values.back() != static_cast<float>(work.source());
  }
  return wrong;
}

void run(const Job& job) {
  Communicator communicator = Communicator::connect();
  const int rank = communicator.rank(), size = communicator.size();
  std::printf("ready %s\n", communicator.address().c_str());
  if (job.mode == "bytes") {
    std::printf("wrong %zu\n", sum_bytes(communicator, job.count));
    return;
  }
  std::vector<float> in(job.count), out(job.count);
  std::size_t wrong = 0;
  for (int round = 0; round < job.operations; ++round) {
    if (round == job.at) {
      if (job.mode == "never") {  // alive, but it never calls again
        char byte = 0;
        while (::read(STDIN_FILENO, &byte, 1) > 0) {
        }
        return;
      }
      if (job.mode == "leave") return;
      if (job.mode == "throw") {
        static std::vector<float> kept(job.count);  // borrowed until the communicator has ended
        const Buffer buffer = buffer_of(std::span(kept));
        const Work work = communicator.all_reduce(buffer, buffer, ReduceOp::sum);
        throw std::runtime_error("the program of this rank has thrown");
      }
      if (job.mode == "expect-root") {
        communicator.broadcast(buffer_of(std::span(in)), buffer_of(std::span(out)), 0).wait();
      } else if (job.mode != "run") {
        call_otherwise(communicator, job.mode, in, out);
      }
    }
    for (std::size_t i = 0; i < in.size(); ++i)
      in[i] = static_cast<float>(i % 64) + static_cast<float>(round % 8) + static_cast<float>(rank);
    if (job.mode == "messages") {
      wrong += pass_on(communicator, in, out, round);
      continue;
    }
    if (job.mode == "any") {
      wrong += collect(communicator, out);
      continue;
    }
    communicator.all_reduce(buffer_of(std::span(in)), buffer_of(std::span(out)), ReduceOp::sum)
        .wait();
    wrong += check(out, size, round);
  }
  if (wrong != 0) {
    std::printf("wrong %zu\n", wrong);
  } else {
    std::puts("ok");
  }
}

const char* code_of(const std::error_code& code) {
  if (code == Errc::mismatch) return "mismatch";
  if (code == Errc::deadline_exceeded) return "deadline_exceeded";
  if (code == Errc::peer_lost) return "peer_lost";
  if (code == Errc::peer_left) return "peer_left";
  if (code == Errc::aborted) return "aborted";
  if (code == Errc::rendezvous) return "rendezvous";
  if (code == Errc::authentication) return "authentication";
  return "other";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Job job{argv[1], std::atoi(argv[2]), std::atoi(argv[3]),
                static_cast<std::size_t>(std::atoll(argv[4]))};
  try {
    run(job);
  } catch (const Error& error) {
    std::printf("error %s %s\n", code_of(error.code()), error.what());
    return 1;
  } catch (const std::exception& error) {
    std::printf("threw %s\n", error.what());
    return 1;
  }
  return 0;
}
