//! A device of Vulkan that runs compute shaders over three buffers, and what it says of its arithmetic.

use std::ffi::CStr;

use anyhow::{Context, Result, bail};
use ash::vk;

/// A device with one queue.
pub struct Device {
    entry: ash::Entry,
    instance: ash::Instance,
    physical: vk::PhysicalDevice,
    device: ash::Device,
    queue: vk::Queue,
    pool: vk::CommandPool,
    memory_type: u32,
}

/// A device's own description of its arithmetic.
pub struct About {
    pub name: String,
    pub driver: String,
    /// Names of the promises for floats of 32 bits, and if it makes them.
    pub promises: Vec<(&'static str, bool)>,
}

/// The sizes that a shader is given.
#[derive(Clone, Copy, Default)]
pub struct Sizes {
    pub rows: u32,
    pub columns: u32,
    pub extra: u32,
    pub number: f32,
}

impl Sizes {
    fn bytes(self) -> Vec<u8> {
        [self.rows, self.columns, self.extra, self.number.to_bits()]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect()
    }
}

/// A buffer with its memory, which stays mapped.
struct Buffer {
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    data: *mut u8,
}

impl Device {
    /// The first device that has what the shaders need.
    ///
    /// # Errors
    /// There is no loader, no such device, or one that fails.
    pub fn open() -> Result<Device> {
        // SAFETY: a system's loader is loaded, whose start code is trusted like that of any library of the system.
        let entry = unsafe { ash::Entry::load() }.context("no Vulkan loader (libvulkan1)")?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the structures that `info` points to live until the call ends; so in all calls below.
        let instance = unsafe { entry.create_instance(&info, None) }.context("no instance")?;
        let all = unsafe { instance.enumerate_physical_devices() }?;
        for physical in all {
            let features = unsafe { instance.get_physical_device_features(physical) };
            if features.shader_float64 == 0 || features.shader_int64 == 0 {
                continue;
            }
            let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
            let computes = |f: &vk::QueueFamilyProperties| f.queue_flags.contains(vk::QueueFlags::COMPUTE);
            let Some(family) = families.iter().position(computes) else { continue };
            let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
            let wanted = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
            let fits = |t: &vk::MemoryType| t.property_flags.contains(wanted);
            let Some(memory_type) = memory.memory_types_as_slice().iter().position(fits) else { continue };
            let queues =
                [vk::DeviceQueueCreateInfo::default().queue_family_index(family as u32).queue_priorities(&[1.0])];
            let features = vk::PhysicalDeviceFeatures::default().shader_float64(true).shader_int64(true);
            let extensions = [ash::khr::shader_float_controls::NAME.as_ptr()];
            let info = vk::DeviceCreateInfo::default()
                .queue_create_infos(&queues)
                .enabled_extension_names(&extensions)
                .enabled_features(&features);
            let device = unsafe { instance.create_device(physical, &info, None) }.context("no device")?;
            let queue = unsafe { device.get_device_queue(family as u32, 0) };
            let info = vk::CommandPoolCreateInfo::default().queue_family_index(family as u32);
            let pool = unsafe { device.create_command_pool(&info, None) }?;
            return Ok(Device { entry, instance, physical, device, queue, pool, memory_type: memory_type as u32 });
        }
        bail!("no device with doubles and integers of 64 bits")
    }

    /// The description that the device gives of itself.
    pub fn about(&self) -> About {
        let mut controls = vk::PhysicalDeviceFloatControlsProperties::default();
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut controls).push_next(&mut driver);
        // SAFETY: the chain of structures lives until the call ends.
        unsafe { self.instance.get_physical_device_properties2(self.physical, &mut all) };
        let name = all.properties.device_name;
        let text = |chars: &[std::ffi::c_char]| {
            // SAFETY: Vulkan ends these arrays with a zero.
            unsafe { CStr::from_ptr(chars.as_ptr()) }.to_string_lossy().into_owned()
        };
        About {
            name: text(&name),
            driver: text(&driver.driver_info),
            promises: vec![
                ("subnormal numbers stay", controls.shader_denorm_preserve_float32 != 0),
                ("results are rounded to the nearest", controls.shader_rounding_mode_rte_float32 != 0),
                ("zeros, infinities and NaNs are kept", controls.shader_signed_zero_inf_nan_preserve_float32 != 0),
                ("the same of doubles", controls.shader_denorm_preserve_float64 != 0),
                ("doubles are rounded to the nearest", controls.shader_rounding_mode_rte_float64 != 0),
            ],
        }
    }

    /// Runs a shader over buffers `a` and `b`, and gives the words of the third, of which there are `words`.
    ///
    /// # Errors
    /// The device fails.
    pub fn run(&self, code: &[u8], sizes: Sizes, a: &[u8], b: &[u8], words: usize) -> Result<Vec<u32>> {
        let d = &self.device;
        let buffers = [self.buffer(a.len())?, self.buffer(b.len())?, self.buffer(4 * words)?];
        for (buffer, data) in buffers.iter().zip([a, b]) {
            // SAFETY: the buffer has at least as many mapped bytes as its data.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), buffer.data, data.len()) };
        }
        let code: Vec<u32> = code.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let bindings: Vec<_> = (0..3)
            .map(|i| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(i)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        // SAFETY: every handle below is made by this device, used before it is destroyed, and the queue is idle when it is.
        unsafe {
            let layout_info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
            let set_layout = d.create_descriptor_set_layout(&layout_info, None)?;
            let constants = [vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).size(16)];
            let set_layouts = [set_layout];
            let info =
                vk::PipelineLayoutCreateInfo::default().set_layouts(&set_layouts).push_constant_ranges(&constants);
            let layout = d.create_pipeline_layout(&info, None)?;
            let module = d.create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&code), None)?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(c"main");
            let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout)];
            let pipeline = d.create_compute_pipelines(vk::PipelineCache::null(), &info, None).map_err(|(_, e)| e)?[0];
            let sizes_of_pool =
                [vk::DescriptorPoolSize::default().ty(vk::DescriptorType::STORAGE_BUFFER).descriptor_count(3)];
            let info = vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(&sizes_of_pool);
            let descriptors = d.create_descriptor_pool(&info, None)?;
            let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(descriptors).set_layouts(&set_layouts);
            let set = d.allocate_descriptor_sets(&info)?[0];
            for (i, buffer) in buffers.iter().enumerate() {
                let whole = [vk::DescriptorBufferInfo::default().buffer(buffer.buffer).range(vk::WHOLE_SIZE)];
                let write = vk::WriteDescriptorSet::default()
                    .dst_set(set)
                    .dst_binding(i as u32)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .buffer_info(&whole);
                d.update_descriptor_sets(&[write], &[]);
            }
            let info = vk::CommandBufferAllocateInfo::default().command_pool(self.pool).command_buffer_count(1);
            let commands = d.allocate_command_buffers(&info)?;
            d.begin_command_buffer(commands[0], &vk::CommandBufferBeginInfo::default())?;
            d.cmd_bind_pipeline(commands[0], vk::PipelineBindPoint::COMPUTE, pipeline);
            d.cmd_bind_descriptor_sets(commands[0], vk::PipelineBindPoint::COMPUTE, layout, 0, &[set], &[]);
            d.cmd_push_constants(commands[0], layout, vk::ShaderStageFlags::COMPUTE, 0, &sizes.bytes());
            d.cmd_dispatch(commands[0], sizes.rows.div_ceil(64), 1, 1);
            d.end_command_buffer(commands[0])?;
            d.queue_submit(self.queue, &[vk::SubmitInfo::default().command_buffers(&commands)], vk::Fence::null())?;
            d.queue_wait_idle(self.queue)?;
            d.free_command_buffers(self.pool, &commands);
            d.destroy_descriptor_pool(descriptors, None);
            d.destroy_pipeline(pipeline, None);
            d.destroy_shader_module(module, None);
            d.destroy_pipeline_layout(layout, None);
            d.destroy_descriptor_set_layout(set_layout, None);
        }
        // SAFETY: the buffer has so many mapped words, which the device has written.
        let out = unsafe { std::slice::from_raw_parts(buffers[2].data.cast::<u32>(), words) }.to_vec();
        for Buffer { buffer, memory, .. } in buffers {
            // SAFETY: the queue is idle, and nobody keeps the pointer.
            unsafe {
                d.destroy_buffer(buffer, None);
                d.free_memory(memory, None);
            }
        }
        Ok(out)
    }

    /// A buffer of at least `size` bytes.
    fn buffer(&self, size: usize) -> Result<Buffer> {
        let size = size.next_multiple_of(4).max(4);
        let info = vk::BufferCreateInfo::default().size(size as u64).usage(vk::BufferUsageFlags::STORAGE_BUFFER);
        // SAFETY: the memory is as large as the buffer asks for, and is mapped whole.
        unsafe {
            let buffer = self.device.create_buffer(&info, None)?;
            let needed = self.device.get_buffer_memory_requirements(buffer);
            if needed.memory_type_bits & (1 << self.memory_type) == 0 {
                bail!("buffers do not go into the memory that the processor sees");
            }
            let info =
                vk::MemoryAllocateInfo::default().allocation_size(needed.size).memory_type_index(self.memory_type);
            let memory = self.device.allocate_memory(&info, None)?;
            self.device.bind_buffer_memory(buffer, memory, 0)?;
            let data = self.device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())?;
            data.cast::<u8>().write_bytes(0, size);
            Ok(Buffer { buffer, memory, data: data.cast() })
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: all work is done, and nothing that was made by them is left.
        unsafe {
            self.device.destroy_command_pool(self.pool, None);
            self.device.destroy_device(None);
            self.instance.destroy_instance(None);
        }
        let _ = &self.entry;
    }
}
