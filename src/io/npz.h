// NumPy's .npz format: a zip archive whose members are .npy files.
//
//     archive = { member "<name>.npy", stored or deflated } central-directory      zip64 where sizes or counts need it
//
// libzip reads and writes the archive; npy.h describes the members. A member's name without ".npy" is the array's. Two members of
// one name are refused, and PyTorch checkpoints, which are zip archives too. Unreadable as an array is a member that is encrypted, packed
// by another method, states sizes that cannot be, or holds no .npy file of a type that is read. Entries of folders hold nothing and
// are passed over.
//
// A stored member is as long as its bytes in the archive. A deflated one states its length, and deflate packs at most 1032 bytes into
// one; a statement beyond that is false, and the shape in the member's header must agree with the statement before memory is taken.
// The member's checksum is verified by the time its array has been read.
//
// The writer stores (floats hardly shrink, and stored members are read at the speed of the disk) and dates every member 1980-01-01, as
// NumPy does, so that equal arrays give equal bytes.
#pragma once

#include <memory>

#include "io/byte_source.h"
#include "io/file_impl.h"

namespace regard::io {

std::unique_ptr<File::Impl> OpenNpz(std::unique_ptr<ByteSource> source);

}  // namespace regard::io
